"""The kernels of byte hashes: one invocation hashes a message (glsl/byte_hashes/message.glsl).

fixed      rows of a length that is a constant of the pipeline: those that trees hash
rows       rows of any length, which is a push constant: all lengths share one pipeline
messages   messages of different lengths, which a table lists
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.kernel import Constant, Kernel, Tuning
from gpu_executor.kernels.byte_hash_references import (
    BLAKE3_IV,
    CHUNK_BYTES,
    DERIVE_KEY_CONTEXT,
    DERIVE_KEY_MATERIAL,
    HOST_HASHES,
    KEYED_HASH,
    Rows,
    blake3,
)
from gpu_executor.kernels.modules import SpecId, encode_words, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel

Variant = Literal["fixed", "rows", "messages"]
VARIANTS: tuple[Variant, ...] = ("fixed", "rows", "messages")
MAX_PREFIX_BYTES = 4
FIXED_LENGTHS = (32, 64)
"""Lengths of rows that have a pipeline of their own, besides those of two digests: leaves and nodes
of trees of 32-byte digests."""
WORD_BYTES = 4
PARENTS = "blake3_parents"


Constants = tuple[tuple[int, Constant], ...]


@dataclass(frozen=True, slots=True)
class Blake3Mode:
    """What BLAKE3 begins with: a key of eight words, and the flags of its mode."""

    key: tuple[int, ...] = BLAKE3_IV
    flags: int = 0

    @classmethod
    def keyed(cls, key: bytes) -> Blake3Mode:
        """With a key of 32 bytes."""
        return cls(_split_words(key), KEYED_HASH)

    @classmethod
    def derive_key(cls, context: bytes) -> Blake3Mode:
        """With the key that follows from a context."""
        row = np.frombuffer(context, np.uint8).reshape(1, -1)
        return cls(
            _split_words(blake3(row, flags=DERIVE_KEY_CONTEXT).tobytes()), DERIVE_KEY_MATERIAL
        )


def _split_words(data: bytes) -> tuple[int, ...]:
    return tuple(np.frombuffer(data, "<u4").tolist())


@dataclass(frozen=True, slots=True)
class HashAlgorithm:
    """A byte hash: its code on devices, and by its name on the host."""

    name: str
    module: str
    digest_size: int
    constants: Constants = ()
    """Specialization constants."""
    block_bytes: int = 64
    block_iterations: int = 1
    """Iterations of all loops of an invocation for a block, the ends of inner loops included."""
    mode: Blake3Mode | None = None
    """Of BLAKE3, which hashes a long message as a tree."""

    def hash_on_host(self, rows: Rows, prefix: bytes = b"", *, sorts: bool = False) -> Rows:
        """The digests of rows on the host."""
        if sorts:
            rows = sort_halves(rows)
        if prefix:
            head = np.broadcast_to(np.frombuffer(prefix, np.uint8), (len(rows), len(prefix)))
            rows = np.concatenate([head, rows], axis=1)
        rows = np.ascontiguousarray(rows)
        if self.mode is not None:
            return blake3(rows, self.mode.key, self.mode.flags)
        return HOST_HASHES[self.name](rows)

    def is_fixed(self, length: int) -> bool:
        """Whether rows of that length have a pipeline of their own."""
        return length in FIXED_LENGTHS or length == 2 * self.digest_size

    def is_tree(self, length: int) -> bool:
        """Whether messages of that length are hashed as a tree of chunks."""
        return self.mode is not None and length > CHUNK_BYTES

    def count_iterations(self, length: int) -> int:
        """Iterations of loops of an invocation that hashes a message of that length, at most."""
        return (length // self.block_bytes + 3) * self.block_iterations + 8

    def make_push(
        self, length: int, prefix: bytes = b"", *, chunks: int = 0, first: int = 0
    ) -> tuple[int, ...]:
        """The push words for rows of that length. With `chunks`, those of BLAKE3 are for so many
        chunks of each row, of which the first has the number `first`; else a row is a message."""
        words = length, len(prefix), int.from_bytes(prefix, "little")
        if self.mode is None:
            return words
        number = first & 0xFFFFFFFF, first >> 32
        return *words, self.mode.flags, int(not chunks), max(chunks, 1), *number, *self.mode.key


SHA256 = HashAlgorithm("SHA256", "sha256", 32)
SHA256D = HashAlgorithm("SHA256D", "sha256", 32, ((SpecId.DOUBLES, True),))
SHA512 = HashAlgorithm("SHA512", "sha512", 64, block_bytes=128, block_iterations=1 + 5 + 1)
SHA3_256 = HashAlgorithm(
    "SHA3_256", "keccak256", 32, ((SpecId.DOMAIN, 6),), block_bytes=136, block_iterations=1 + 24 + 1
)
KECCAK256 = dataclasses.replace(SHA3_256, name="KECCAK256", constants=((SpecId.DOMAIN, 1),))
BLAKE2S = HashAlgorithm("BLAKE2S", "blake2s", 32)
BLAKE3 = HashAlgorithm("BLAKE3", "blake3", 32, mode=Blake3Mode())
RIPEMD160 = HashAlgorithm("RIPEMD160", "ripemd160", 20)


def list_hash_variants(name: str) -> tuple[Variant, ...]:
    """Return the variants in which a file of glsl/byte_hashes is compiled."""
    return VARIANTS[1:] if name == PARENTS else VARIANTS


def sort_halves(rows: Rows) -> Rows:
    """Rows with the smaller half first; halves are compared as strings of bytes."""
    halves = rows.reshape(len(rows), 2, rows.shape[1] // 2)
    differs = halves[:, 0] != halves[:, 1]
    first = np.argmax(differs, axis=1)[:, None]
    left, right = (np.take_along_axis(halves[:, side], first, axis=1) for side in (0, 1))
    found: Rows = np.where((left > right)[:, :, None], halves[:, ::-1], halves)
    return found.reshape(rows.shape)


def count_grouped_rows(length: int) -> int:
    """The fewest rows with a multiple of 4 bytes: together they are an element of `call_kernel`."""
    return WORD_BYTES // int(np.gcd(length, WORD_BYTES))


def get_step_kernel(
    algorithm: HashAlgorithm,
    variant: Variant,
    *,
    length: int = 0,
    prefix_bytes: int = 0,
    sorts: bool = False,
) -> Kernel:
    """Return the kernel that a Dispatch runs. Input: bytes as words, and of messages a table with
    the offset and the length of each; output: digests. Push words: `HashAlgorithm.make_push`.
    `length`, `prefix_bytes` and `sorts` are those of a fixed length only.
    """
    constants = _list_constants(algorithm, variant, length, prefix_bytes, sorts=sorts)
    # Keys are no part of a kernel: there may be many.
    return _step_kernel(algorithm.module, variant, tuple(constants.items()))


def get_parents_kernel(variant: Variant) -> Kernel:
    """Return the kernel of a level of BLAKE3's tree (glsl/byte_hashes/blake3_parents.comp). Push
    words: the flags, whether the parents are roots, the children of a tree, the key.
    """
    return _step_kernel(PARENTS, variant, ((SpecId.GRID_STRIDE, True),))


@functools.cache
def _step_kernel(module: str, variant: Variant, constants: Constants) -> Kernel:
    inputs = 2 if variant == "messages" else 1
    return make_pass_kernel(
        load_spirv(f"{module}_{variant}"),
        f"{module}_{variant}",
        inputs,
        [np.uint32] * (inputs + 1),
        constants=dict(constants),
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
    )


@functools.lru_cache(maxsize=256)
def call_kernel(
    algorithm: HashAlgorithm, length: int, prefix: bytes = b"", *, sorts: bool = False
) -> Kernel:
    """Return the kernel that hashes host arrays of uint8: elements of `count_grouped_rows` rows,
    each with its prefix. `length` is at least 1, and no message is a tree.
    """
    variant: Variant = "fixed" if algorithm.is_fixed(length) else "rows"
    rows = count_grouped_rows(length)
    constants = _list_constants(algorithm, variant, length, len(prefix), sorts=sorts)
    if variant == "rows":
        constants[SpecId.ROWS_PER_ELEMENT] = rows
    shapes = (rows * length,), (rows * algorithm.digest_size,)
    return Kernel.from_spirv(
        load_spirv(f"{algorithm.module}_{variant}"),
        buffers=[(role, f"({n},)u1") for role, (n,) in zip(("in", "out"), shapes, strict=True)],
        split="elements",
        count=True,
        init=None,
        constants=constants,
        push=encode_words(algorithm.make_push(length, prefix)),
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
        reference=functools.partial(_hash_elements, algorithm, length, prefix, sorts),
        name=f"{algorithm.name}_{length}",
    )


def _hash_elements(
    algorithm: HashAlgorithm, length: int, prefix: bytes, sorts: bool, elements: Rows
) -> Rows:
    """The reference of `call_kernel`."""
    digests = algorithm.hash_on_host(elements.reshape(-1, length), prefix, sorts=sorts)
    return digests.reshape(len(elements), -1)


def _list_constants(
    algorithm: HashAlgorithm, variant: Variant, length: int, prefix_bytes: int, *, sorts: bool
) -> dict[int, Constant]:
    constants: dict[int, Constant] = {SpecId.GRID_STRIDE: True, **dict(algorithm.constants)}
    if variant == "fixed":
        constants |= {
            SpecId.ROW_BYTES: length,
            SpecId.PREFIX_BYTES: prefix_bytes,
            SpecId.SORTS: sorts,
        }
    return constants
