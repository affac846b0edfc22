"""MiMC (https://eprint.iacr.org/2016/492) over BN254's scalar field, as circomlib has it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from gpu_executor.calls.arguments import is_integer
from gpu_executor.errors import ArgumentValueError
from gpu_executor.fields import BN254_FR
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.permutation import Permutation, parse_integer, raise_column
from gpu_executor.hashes.sponge import Sponge
from gpu_executor.kernels.byte_hash_references import keccak256
from gpu_executor.kernels.modules import SpecId
from gpu_executor.ops.field_hashes import Column

CIRCOMLIB = "circomlib, as circomlibjs 0.1.7 has it"
MIMC7_ROUNDS, MIMC7_EXPONENT, MIMC7_SEED = 91, 7, b"mimc"
SPONGE_ROUNDS, SPONGE_EXPONENT, SPONGE_SEED = 220, 5, b"mimcsponge"


MAX_OUTPUTS = 1 << 20
"""Elements of a digest, each of which takes a permutation."""


def make_constants(seed: bytes, rounds: int) -> list[int]:
    """The constants of all rounds: Keccak-256 of the seed, again and again; that of the first round
    is 0."""
    digest, found = keccak256(np.frombuffer(seed, np.uint8)[None]), [0]
    for _ in range(1, rounds):
        digest = keccak256(digest)
        found.append(int.from_bytes(digest.tobytes(), "big") % BN254_FR.modulus)
    return found


class Mimc7Step(Permutation):
    """One step of MiMC7's `multiHash`: a key k and a message x become k + x + E_k(x) and E_k(x), E
    the cipher (Miyaguchi-Preneel). It is no permutation; E_k is one."""

    module = "mimc"

    def __init__(self) -> None:
        super().__init__(BN254_FR, 2, CIRCOMLIB)
        self._constants = make_constants(MIMC7_SEED, MIMC7_ROUNDS)

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return (
            (SpecId.ROUNDS, MIMC7_ROUNDS),
            (SpecId.EXPONENT, MIMC7_EXPONENT),
            (SpecId.FEISTEL, False),
        )

    def list_constants(self) -> Sequence[int]:
        return self._constants

    def permute(self, state: list[Column]) -> list[Column]:
        modulus = self.prime.modulus
        key, message = state
        x = message
        for constant in self._constants:
            x = raise_column((x + key + constant) % modulus, MIMC7_EXPONENT, modulus)
        encrypted = (x + key) % modulus
        return [(key + message + encrypted) % modulus, encrypted]


class MimcFeistel(Permutation):
    """MiMC in a Feistel network of two halves."""

    module = "mimc"

    def __init__(self, key: int) -> None:
        super().__init__(BN254_FR, 2, CIRCOMLIB)
        constants = make_constants(SPONGE_SEED, SPONGE_ROUNDS)
        constants[-1] = 0
        self._constants = [(each + key) % BN254_FR.modulus for each in constants]

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return (
            (SpecId.ROUNDS, SPONGE_ROUNDS),
            (SpecId.EXPONENT, SPONGE_EXPONENT),
            (SpecId.FEISTEL, True),
        )

    def list_constants(self) -> Sequence[int]:
        return self._constants

    def permute(self, state: list[Column]) -> list[Column]:
        modulus = self.prime.modulus
        left, right = state
        for constant in self._constants:
            raised = raise_column((left + constant) % modulus, SPONGE_EXPONENT, modulus)
            left, right = (right + raised) % modulus, left
        return [right, left]  # the last round does not swap


def _check_key(name: str, key: int) -> int:
    if not is_integer(key) or not 0 <= key < BN254_FR.modulus:
        raise ArgumentValueError(f"{name}: key must be an element of BN254_FR, not {key!r}")
    return int(key)


def mimc7(key: int = 0) -> FieldHash:
    """circomlib's MiMC7, `multiHash` of rows of any length: digests of one element.

    Its state is a key and a message: `permute` makes (k + x + E_k(x), E_k(x)) of (k, x), E_k(x) is
    circomlib's `hash`.

    Args:
        key (int): The key of `multiHash`.
    """
    return _make_mimc7(_check_key("mimc7", key))


@functools.cache
def _make_step() -> Mimc7Step:
    return Mimc7Step()


def _begin_with_key(key: int, _length: int) -> tuple[tuple[int, int], ...]:
    return ((0, key),)


@functools.lru_cache
def _make_mimc7(key: int) -> FieldHash:
    sponge = Sponge(
        "Miyaguchi-Preneel", rate=1, first=1, begin=functools.partial(_begin_with_key, key)
    )
    return FieldHash("MiMC7 bn254_fr (circomlib)", _make_step(), sponge, "sponge")


def mimc_sponge(key: int = 0, outputs: int = 1) -> FieldHash:
    """circomlib's MiMCSponge, `multiHash` of rows of any length.

    Args:
        key (int): The key of `multiHash`.
        outputs (int): The elements of a digest.
    """
    checked = parse_integer("mimc_sponge: outputs", outputs, 1, MAX_OUTPUTS)
    return _make_mimc_sponge(_check_key("mimc_sponge", key), checked)


@functools.lru_cache
def _make_feistel(key: int) -> MimcFeistel:
    return MimcFeistel(key)


@functools.lru_cache
def _make_mimc_sponge(key: int, outputs: int) -> FieldHash:
    sponge = Sponge("circomlib's sponge", rate=1, mode="add", outputs=outputs, squeezed=1)
    return FieldHash("MiMCSponge bn254_fr (circomlib)", _make_feistel(key), sponge, "sponge")
