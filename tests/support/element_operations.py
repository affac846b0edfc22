"""The element kernels' operations on Python integers, with operands and expected results."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.kernels.elements import CONVERSIONS, OPERATIONS
from gpu_executor.kernels.families import in_montgomery_form
from gpu_executor.primes import Prime, words

Array = npt.NDArray[Any]
Ints = Sequence[int]


def list_operations(prime: Prime) -> list[str]:
    """The operations that the prime's family has."""
    has_form = in_montgomery_form(prime)
    return [name for name in OPERATIONS if has_form or name not in CONVERSIONS]


class ExactOperations:
    """The operations on Python integers, on elements in the form of the prime's family."""

    def __init__(self, prime: Prime) -> None:
        self.modulus = prime.modulus
        self.one = prime.r % prime.modulus if in_montgomery_form(prime) else 1
        self.r = prime.r
        self.per_product = pow(self.one, -1, prime.modulus)

    def add(self, a: int, b: int) -> int:
        return (a + b) % self.modulus

    def sub(self, a: int, b: int) -> int:
        return (a - b) % self.modulus

    def neg(self, a: int) -> int:
        return -a % self.modulus

    def double(self, a: int) -> int:
        return 2 * a % self.modulus

    def mul(self, a: int, b: int) -> int:
        return a * b * self.per_product % self.modulus

    def square(self, a: int) -> int:
        return self.mul(a, a)

    def fma(self, a: int, b: int, c: int) -> int:
        return (self.mul(a, b) + c) % self.modulus

    def equal(self, a: int, b: int) -> int:
        return int(a == b)

    def select(self, condition: int, a: int, b: int) -> int:
        return a if condition else b

    def power(self, a: int, exponent: int) -> int:
        return pow(a * self.per_product, exponent, self.modulus) * self.one % self.modulus

    def to_montgomery(self, a: int) -> int:
        return a * self.r % self.modulus

    def from_montgomery(self, a: int) -> int:
        return a * pow(self.r, -1, self.modulus) % self.modulus


def list_edge_values(prime: Prime) -> list[int]:
    """Values at which carries, borrows and reductions change, all below the modulus."""
    p = prime.modulus
    boundaries = [*range(0, prime.bits, 32), *range(0, prime.bits, prime.limbs.bits)]
    some_boundaries = boundaries[:: max(1, len(boundaries) // 8)]
    near = [(1 << bit) + off for bit in some_boundaries for off in (-1, 0, 1)]
    values = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1, prime.r_mod_p, prime.r2_mod_p, *near]
    return sorted({value for value in values if 0 <= value < p})


def draw_elements(prime: Prime, count: int, seed: int) -> list[int]:
    """Random elements, about half of them edge values."""
    draw, known = random.Random(seed), list_edge_values(prime)
    return [
        draw.choice(known) if draw.random() < 0.5 else draw.randrange(prime.modulus)
        for _ in range(count)
    ]


def list_exponents(prime: Prime) -> list[int]:
    """Exponents of every path of a power: no product, squares alone, pairs of bits, and random."""
    p = prime.modulus
    return [0, 1, 2, 3, 2 ** (prime.bits - 1), p - 2, p - 1, random.Random(p).randrange(p)]


def make_conditions(count: int) -> list[int]:
    """Conditions of `select`: zeros, a one, and the highest bit."""
    return [(0, 1, 0, 2**31)[i % 4] for i in range(count)]


def to_words(number: int, count: int) -> npt.NDArray[np.uint32]:
    """An integer as little-endian words of 32 bits."""
    return np.frombuffer(number.to_bytes(4 * count, "little"), np.uint32).copy()


def make_operands(
    prime: Prime, operation: str, counts: Sequence[int]
) -> tuple[list[Ints], list[Array]]:
    """Operands with these element counts, as integers and as arrays."""
    ints: list[Ints] = [draw_elements(prime, count, seed) for seed, count in enumerate(counts)]
    arrays = [words.from_ints(prime, each) for each in ints]
    if operation == "select":
        ints[0] = make_conditions(counts[0])
        arrays[0] = np.array(ints[0], np.uint32)
    return ints, arrays


def compute_expected(prime: Prime, operation: str, ints: Sequence[Ints]) -> list[int]:
    """The exact results; operands that are shorter than the first are repeated."""
    exact: Callable[..., int] = getattr(ExactOperations(prime), operation)
    first, *others = ints
    return [exact(a, *(other[i % len(other)] for other in others)) for i, a in enumerate(first)]


def to_ints(prime: Prime, operation: str, result: Array) -> list[int]:
    """A kernel's result as integers."""
    return result.tolist() if operation == "equal" else words.to_ints(prime, result)
