"""Fields of every kernel family, elements at edge values, and exact transforms to compare with."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, product
from typing import Any, Literal, get_args

import numpy as np
import pytest
from flint import fmpz_mod_ctx, fmpz_mod_poly, fmpz_mod_poly_ctx

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FQ,
    BLS12_381_FR,
    GOLDILOCKS,
    MERSENNE31,
    SECP256K1_FQ,
    Field,
    FieldArray,
)
from gpu_executor.fields.field import NAMED_FIELDS
from gpu_executor.ops.transforms import Order
from gpu_executor.primes.number_theory import is_prime
from gpu_executor.vulkan.device_memory import DeviceMemory

Place = Literal["host", "device", "cpu"]
"""Host memory, the device of a GPU backend, or device arrays of the CPU backend."""
CPU = gx.CpuBackend()
ORDERS: tuple[Order, ...] = get_args(Order)

NAMED = list(NAMED_FIELDS.values())
THREE, FIVE = Field(3), Field(5)
FULL96, FULL768 = (
    Field((part << log_order) + 1, name=f"full {bits} bits", factors=[part])
    for bits, log_order, part in ((96, 16, 2**80 - 2259), (768, 32, 2**736 - 209583))
)
"""An odd number of words, and the largest number of bits; roots of order 2^16 and 2^32."""
OTHERS = [
    *(THREE, FIVE, Field(127)),
    Field(2**31 - 19, name="full 31 bits"),
    Field(2**32 + 15, name="33 bits"),
    Field(2**61 - 1, name="2^61-1"),
    FULL96,
    # 224 and 480 bits fill whole limbs, so twice the modulus needs one bit more.
    Field(2**224 - 63, name="full 224 bits"),
    Field(2**480 - 47, name="full 480 bits"),
]
ONE_OF_EACH = [BLS12_381_FR, GOLDILOCKS, BABYBEAR, MERSENNE31]
"""One field of each kernel family: wide, goldilocks, monty31, mersenne31."""
CONFORMING = [
    *(BLS12_381_FR, BLS12_381_FQ, GOLDILOCKS, BABYBEAR, MERSENNE31, SECP256K1_FQ),
    *(FULL96, FULL768, THREE, FIVE),
]
"""The fields of the conformance suites: every family, few and many words, few and many roots."""

on_every_field = pytest.mark.parametrize(
    "field",
    [*NAMED, *OTHERS, pytest.param(FULL768, marks=pytest.mark.slow)],
    ids=lambda field: field.name,
)
on_one_of_each = pytest.mark.parametrize("field", ONE_OF_EACH, ids=lambda field: field.name)
on_conforming_fields = pytest.mark.parametrize("field", CONFORMING, ids=lambda field: field.name)
on_three_fields = pytest.mark.parametrize(
    "field", [BLS12_381_FR, GOLDILOCKS, BABYBEAR], ids=lambda field: field.name
)
"""Elements of eight words, of two and of one."""
in_both_places = pytest.mark.parametrize("place", ["host", "device"])
in_every_place = pytest.mark.parametrize("place", get_args(Place))


def make_array(
    gpu: gx.PersistentVulkanBackend, place: Place, field: Field, values: Any
) -> FieldArray:
    """Integers of any shape as an array in a place."""
    array = field.encode(values)
    if place == "host":
        return array
    return gpu.to_device(array) if place == "device" else CPU.to_device(array)


def to_ints(array: FieldArray) -> Any:
    """The elements as integers, in nested lists."""
    return array.field.decode(array).tolist()


def to_words(field: Field, values: Sequence[int]) -> Any:
    """Integers as the words of elements in canonical form."""
    prime = field.prime
    data = b"".join(value.to_bytes(4 * prime.words, "little") for value in values)
    dtype = np.uint64 if prime.words % 2 == 0 else np.uint32
    array = np.frombuffer(data, dtype).reshape(len(values), -1)
    return array[:, 0] if array.shape[1] == 1 else array


def list_edge_values(field: Field, most_boundaries: int = 6) -> list[int]:
    """Values where carries, borrows and reductions change: 0, 1, p - 1, R and the like, and values
    around boundaries of words and limbs, at most about `most_boundaries` of those."""
    prime, p = field.prime, field.modulus
    boundaries = [*range(0, prime.bits, 32), *range(0, prime.bits, prime.limbs.bits)]
    taken = boundaries[:: max(1, len(boundaries) // most_boundaries)]
    near = [(1 << bit) + off for bit in taken for off in (-1, 0, 1)]
    values = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1, prime.r % p, prime.r**2 % p, *near]
    return sorted({value for value in values if 0 <= value < p})


def invert(field: Field, value: int) -> int:
    """1 / value, and 0 for 0."""
    return pow(value, -1, field.modulus) if value else 0


def multiply_prefixes(field: Field, row: Sequence[int]) -> list[int]:
    """Each element times all elements before it."""
    return list(accumulate(row, lambda x, y: x * y % field.modulus))


def draw_elements(field: Field, count: int, seed: int) -> list[int]:
    """Random elements, a third of them edge values."""
    draw, known = random.Random(seed), list_edge_values(field)
    return [
        draw.choice(known) if draw.random() < 0.3 else draw.randrange(field.modulus)
        for _ in range(count)
    ]


# --- arrays of integers to compare with ---


def draw_ints(field: Field, shape: tuple[int, ...], seed: int = 1) -> Any:
    """Random elements as an array of Python's integers."""
    return np.array(draw_elements(field, math.prod(shape), seed), object).reshape(shape)


def check_elements(found: Any, wanted: Any, place: Place) -> None:
    """Check that an array is in a place, and equals integers modulo p in shape and values."""
    assert isinstance(found, FieldArray)
    exact = np.asarray(np.asarray(wanted, object) % found.field.modulus, object)
    assert (found.shape, found.on_device) == (exact.shape, place != "host")
    assert found.tolist() == exact.tolist()


# --- exact transforms ---

GENERATORS = {
    "bls12_381_fr": 7,
    "bn254_fr": 5,
    "goldilocks": 7,
    "babybear": 31,
    "koalabear": 3,
}
"""The generators whose powers other libraries use as roots of unity."""


@cache
def find_prime(bits: int, *, largest: bool) -> int:
    """The largest or the smallest prime of so many bits that has roots of unity of order 2^12."""
    found = ((1 << bits) - 1 if largest else (1 << bits - 1)) >> 12 << 12
    while not (found.bit_length() == bits and is_prime(found + 1)):
        found += (-1 if largest else 1) << 12
    return found + 1


def get_root(field: Field, log_n: int) -> int:
    """The root of unity of order 2^log_n that the transforms of a field use."""
    p, generator = field.modulus, GENERATORS.get(field.name)
    if generator is None:
        return field.prime.root_of_unity(log_n)
    return pow(generator, (p - 1) >> log_n, p)


def list_points(field: Field, log_n: int, coset: int = 1) -> list[int]:
    """The points at which a transform evaluates, in natural order."""
    p, root = field.modulus, get_root(field, log_n)
    found = [coset % p]
    for _ in range(1, 1 << log_n):
        found.append(found[-1] * root % p)
    return found


def transform_naively(field: Field, values: Sequence[int], coset: int = 1) -> list[int]:
    """The values of a polynomial of FLINT at all points, each by Horner's rule: O(n^2)."""
    polynomial = make_polynomial(field, values)
    points = list_points(field, len(values).bit_length() - 1, coset)
    return [int(polynomial(x)) for x in points]


def check_extension(
    gpu: gx.PersistentVulkanBackend,
    place: Place,
    field: Field,
    log_n: int,
    blowup: int,
    coset: int | None = None,
) -> None:
    """Check the low-degree extension of three rows of 2^log_n values."""
    rows = [make_polynomial(field, draw_elements(field, 1 << log_n, seed)) for seed in range(3)]
    small = list_points(field, log_n)
    large = list_points(field, log_n + blowup.bit_length() - 1, coset or 1)
    values, wanted = (
        [[int(polynomial(at)) for at in points] for polynomial in rows] for points in (small, large)
    )
    found = field.lde(make_array(gpu, place, field, values), blowup, coset)
    check_elements(found, wanted, place)


def reverse_bits(values: Sequence[int]) -> list[int]:
    """The values in bit-reversed order."""
    bits = len(values).bit_length() - 1
    return [values[int(f"{i:0{bits}b}"[::-1], 2)] if bits else values[i] for i in range(1 << bits)]


def put_in_order(values: Sequence[int], order: Order) -> list[int]:
    return reverse_bits(values) if order == "reversed" else list(values)


def check_transforms(
    gpu: gx.PersistentVulkanBackend,
    place: Place,
    field: Field,
    log_n: int,
    coset: int | None = None,
) -> None:
    """Check transforms and their inverses, of two rows and of one, for all pairs of orders."""
    rows = [draw_elements(field, 1 << log_n, log_n + seed) for seed in (0, 1)]
    wanted = [transform_naively(field, row, 1 if coset is None else coset) for row in rows]
    for first, then in product(ORDERS, repeat=2):
        given = [put_in_order(row, first) for row in rows]
        values = [put_in_order(row, then) for row in wanted]
        x = make_array(gpu, place, field, given)
        y = field.ntt(x, coset=coset, order_in=first, order_out=then)
        assert (y.form, y.on_device, to_ints(y)) == (field.form, place != "host", values), (
            first,
            then,
        )
        back = field.intt(y, coset=coset, order_in=then, order_out=first)
        assert to_ints(back) == given, (then, first)
        assert to_ints(x) == given, "the operand is unchanged"
        alone = field.ntt(x[1], coset=coset, order_in=first, order_out=then)
        assert to_ints(alone) == values[1]
        assert to_ints(field.intt(alone, coset=coset, order_in=then, order_out=first)) == given[1]


def check_order(
    gpu: gx.PersistentVulkanBackend,
    field: Field,
    log_n: int,
    first: Order,
    then: Order,
) -> None:
    """Check a transform of two rows on a device and its inverse, for one pair of orders. The host
    converts the elements, so that no other kernels are needed."""
    rows = [draw_elements(field, 1 << log_n, log_n + seed) for seed in (0, 1)]
    given = [put_in_order(row, first) for row in rows]
    values = [put_in_order(transform_naively(field, row), then) for row in rows]
    x = gpu.to_device(field.encode(given).in_form(field.form))
    y = field.ntt(x, order_in=first, order_out=then)
    assert to_ints(y.to_host()) == values, (first, then)
    back = field.intt(y, order_in=then, order_out=first)
    assert to_ints(back.to_host()) == given, (then, first)


@cache
def get_polynomials(modulus: int) -> fmpz_mod_poly_ctx:
    """FLINT's ring of polynomials modulo a prime."""
    return fmpz_mod_poly_ctx(fmpz_mod_ctx(modulus))


def make_polynomial(field: Field, coefficients: Sequence[int]) -> fmpz_mod_poly:
    """A polynomial of FLINT over the field, the constant term first."""
    return get_polynomials(field.modulus)(list(coefficients))


def record_puts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list of the arrays that are uploaded from now on."""
    puts: list[Any] = []
    put = DeviceMemory.put

    def counted(self: DeviceMemory, array: Any) -> Any:
        puts.append(array)
        return put(self, array)

    monkeypatch.setattr(DeviceMemory, "put", counted)
    return puts
