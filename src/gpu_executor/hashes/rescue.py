"""Rescue-Prime Optimized (https://eprint.iacr.org/2022/1577) over Goldilocks, as Miden has it."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np

from gpu_executor.calls.arguments import describe
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.fields import GOLDILOCKS
from gpu_executor.hashes.field_hash import FieldHash
from gpu_executor.hashes.permutation import Permutation, multiply_sum, raise_column
from gpu_executor.hashes.sponge import make_miden_sponge
from gpu_executor.kernels.modules import SpecId
from gpu_executor.ops.field_hashes import Column

WIDTH, RATE, CAPACITY, DIGEST, ROUNDS, EXPONENT, SECURITY = 12, 8, 4, 4, 7, 7, 128
CIRCULANT = (7, 23, 8, 26, 13, 10, 9, 7, 6, 22, 21, 8)
"""The first row of the matrix."""
MIDEN = "Miden crypto 475092a8476bf4c806424579e5d9225b12941c1a"
MIDEN_CAPACITY_FIRST = "Miden crypto b83b134ae531903489f0876f655e9b9164b240e3"


def make_constants() -> list[int]:
    """The constants of all rounds: integers of nine bytes of SHAKE256, modulo p."""
    modulus = GOLDILOCKS.modulus
    seed = f"RPO({modulus},{WIDTH},{CAPACITY},{SECURITY})"
    size, count = GOLDILOCKS.prime.element_bytes + 1, 2 * WIDTH * ROUNDS
    drawn = hashlib.shake_256(seed.encode()).digest(size * count)
    return [
        int.from_bytes(drawn[at : at + size], "little") % modulus
        for at in range(0, len(drawn), size)
    ]


class RescuePermutation(Permutation):
    """Rounds of two halves: a matrix, constants and the power 7; a matrix, constants and the power
    1/7."""

    module = "rescue"

    def __init__(self, source: str) -> None:
        super().__init__(GOLDILOCKS, WIDTH, source)
        self._constants = make_constants()
        self._root = pow(EXPONENT, -1, GOLDILOCKS.modulus - 1)

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        return (SpecId.ROUNDS, ROUNDS), (SpecId.EXPONENT, EXPONENT)

    def list_constants(self) -> Sequence[int]:
        return (*self._constants, *CIRCULANT)

    def permute(self, state: list[Column]) -> list[Column]:
        modulus = self.prime.modulus
        rows = [[CIRCULANT[(j - i) % WIDTH] for j in range(WIDTH)] for i in range(WIDTH)]
        for half in range(2 * ROUNDS):
            constants = self._constants[half * WIDTH : (half + 1) * WIDTH]
            exponent = self._root if half % 2 else EXPONENT
            mixed = [multiply_sum(row, state, modulus) for row in rows]
            state = [
                raise_column((x + c) % modulus, exponent, modulus)
                for x, c in zip(mixed, constants, strict=True)
            ]
        return state


def rpo(*, capacity_first: bool = False) -> FieldHash:
    """Rescue-Prime Optimized over Goldilocks, with digests of four elements: Miden's Rpo256.

    `hash` is `hash_elements`, and `compress` is `merge` for two children, `merge_many` for more.

    Args:
        capacity_first (bool): Whether the capacity is the first four elements of a state, as in the
            paper and in Miden until 2025; otherwise it is the last four.
    """
    if not isinstance(capacity_first, bool | np.bool_):
        raise ArgumentTypeError(
            f"rpo: capacity_first is {describe(capacity_first)}; it must be True or False"
        )
    return _make_rpo(bool(capacity_first))


@functools.cache
def _make_rpo(capacity_first: bool) -> FieldHash:
    source = MIDEN_CAPACITY_FIRST if capacity_first else MIDEN
    first, capacity = (CAPACITY, 0) if capacity_first else (0, RATE)
    sponge = make_miden_sponge(RATE, first, capacity, DIGEST)
    name = f"RPO goldilocks{', capacity first' if capacity_first else ''}"
    return FieldHash(name, RescuePermutation(source), sponge, "sponge")
