"""The kernels of byte hashes: one invocation hashes a message (glsl/byte_hashes/message.glsl).

fixed      rows of a length that is a constant of the pipeline: those that trees hash
rows       rows of any length, which is a push constant: all lengths share one pipeline
messages   messages of different lengths, which a table lists
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.kernel import Constant, Kernel, Tuning
from gpu_executor.kernels.byte_hash_references import HOST_HASHES, Rows
from gpu_executor.kernels.modules import SpecId, encode_words, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel

Variant = Literal["fixed", "rows", "messages"]
VARIANTS: tuple[Variant, ...] = ("fixed", "rows", "messages")
MAX_PREFIX_BYTES = 4
FIXED_LENGTHS = (32, 64)
"""Lengths of rows that have a pipeline of their own, besides those of two digests: leaves and nodes
of trees of 32-byte digests."""
WORD_BYTES = 4


@dataclass(frozen=True, slots=True)
class HashAlgorithm:
    """A byte hash: its code on devices, and by its name on the host."""

    name: str
    module: str
    digest_size: int
    constants: tuple[tuple[int, Constant], ...] = ()
    """Specialization constants."""

    def hash_on_host(self, rows: Rows, prefix: bytes = b"", *, sorts: bool = False) -> Rows:
        """The digests of rows on the host."""
        if sorts:
            rows = sort_halves(rows)
        if prefix:
            head = np.broadcast_to(np.frombuffer(prefix, np.uint8), (len(rows), len(prefix)))
            rows = np.concatenate([head, rows], axis=1)
        return HOST_HASHES[self.name](np.ascontiguousarray(rows))

    def is_fixed(self, length: int) -> bool:
        """Whether rows of that length have a pipeline of their own."""
        return length in FIXED_LENGTHS or length == 2 * self.digest_size


SHA256 = HashAlgorithm("SHA256", "sha256", 32)
SHA256D = HashAlgorithm("SHA256D", "sha256", 32, ((SpecId.DOUBLES, True),))
SHA3_256 = HashAlgorithm("SHA3_256", "keccak256", 32, ((SpecId.DOMAIN, 6),))
KECCAK256 = HashAlgorithm("KECCAK256", "keccak256", 32, ((SpecId.DOMAIN, 1),))


def list_hash_variants(_name: str) -> tuple[Variant, ...]:
    """Return the variants in which a file of glsl/byte_hashes is compiled."""
    return VARIANTS


def sort_halves(rows: Rows) -> Rows:
    """Rows with the smaller half first; halves are compared as strings of bytes."""
    halves = rows.reshape(len(rows), 2, -1)
    differs = halves[:, 0] != halves[:, 1]
    first = np.argmax(differs, axis=1)[:, None]
    left, right = (np.take_along_axis(halves[:, side], first, axis=1) for side in (0, 1))
    found: Rows = np.where((left > right)[:, :, None], halves[:, ::-1], halves)
    return found.reshape(rows.shape)


def encode_prefix(prefix: bytes) -> tuple[int, int]:
    """The push words of a prefix: its length, and its bytes as a little-endian word."""
    return len(prefix), int.from_bytes(prefix, "little")


def count_grouped_rows(length: int) -> int:
    """The fewest rows with a multiple of 4 bytes: together they are an element of `call_kernel`."""
    return WORD_BYTES // int(np.gcd(length, WORD_BYTES))


@functools.cache
def step_kernel(
    algorithm: HashAlgorithm,
    variant: Variant,
    *,
    length: int = 0,
    prefix_bytes: int = 0,
    sorts: bool = False,
) -> Kernel:
    """Return the kernel that a Dispatch runs. Input: bytes as words, and of messages a table with
    the offset and the length of each; output: digests. Push words: the length of a row, and those
    of `encode_prefix`. `length`, `prefix_bytes` and `sorts` are those of a fixed length only.
    """
    inputs = 2 if variant == "messages" else 1
    return make_pass_kernel(
        load_spirv(f"{algorithm.module}_{variant}"),
        f"{algorithm.name}_{variant}",
        inputs,
        [np.uint32] * (inputs + 1),
        constants=_list_constants(algorithm, variant, length, prefix_bytes, sorts=sorts),
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
    )


@functools.lru_cache(maxsize=256)
def call_kernel(
    algorithm: HashAlgorithm, length: int, prefix: bytes = b"", *, sorts: bool = False
) -> Kernel:
    """Return the kernel that hashes host arrays of uint8: elements of `count_grouped_rows` rows,
    each with its prefix. `length` is at least 1.
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
        push=encode_words((length, *encode_prefix(prefix))),
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
