"""Fields of every family, and what tests of them share: elements, places, exact transforms."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    SECP256K1,
    Field,
    FieldArray,
)
from gpu_executor.fields.field import NAMED_FIELDS
from gpu_executor.ops.transforms import Order
from gpu_executor.vulkan.device_memory import DeviceMemory

Place = Literal["host", "card"]
ORDERS: tuple[Order, ...] = get_args(Order)

NAMED = list(NAMED_FIELDS.values())
THREE, FIVE = Field(3), Field(5)
FULL96, FULL768 = (
    Field((part << log_order) + 1, name=f"full {bits} bits", factors=[part])
    for bits, log_order, part in ((96, 16, 2**80 - 2259), (768, 32, 2**736 - 209583))
)
"""An odd number of words, and as many bits as there may be; roots of order 2^16 and 2^32."""
OTHERS = [
    *(THREE, FIVE, Field(127)),
    Field(2**31 - 19, name="full 31 bits"),
    Field(2**32 + 15, name="33 bits"),
    Field(2**61 - 1, name="2^61-1"),
    FULL96,
    # 224 and 480 bits are whole limbs, so that twice the modulus has a bit more than they.
    Field(2**224 - 63, name="full 224 bits"),
    Field(2**480 - 47, name="full 480 bits"),
    FULL768,
]
ONE_OF_EACH = [BLS12_381_FR, GOLDILOCKS, BABYBEAR, MERSENNE31]
"""Families of kernels, in `families`: wide, goldilocks, monty31, mersenne31."""
CONFORMING = [
    *(BLS12_381_FR, BLS12_381_FQ, GOLDILOCKS, BABYBEAR, MERSENNE31, SECP256K1),
    *(FULL96, FULL768, THREE, FIVE),
]
"""What the conformance suites take: every family, few and many words, few and many roots."""

on_every_field = pytest.mark.parametrize("field", [*NAMED, *OTHERS], ids=lambda field: field.name)
on_one_of_each = pytest.mark.parametrize("field", ONE_OF_EACH, ids=lambda field: field.name)
on_conforming_fields = pytest.mark.parametrize("field", CONFORMING, ids=lambda field: field.name)
in_both_places = pytest.mark.parametrize("place", ["host", "card"])


def devices(gpu: gx.PersistentVulkanBackend) -> DeviceMemory:
    return gpu._session.device_memory


def made(gpu: gx.PersistentVulkanBackend, place: Place, field: Field, values: Any) -> FieldArray:
    """Integers, in any shape, as an array in that place."""
    array = field.encode(values)
    return gpu.to_device(array) if place == "card" else array


def ints(array: FieldArray) -> Any:
    """Its elements as integers, in lists of its shape."""
    return array.field.decode(array).tolist()


def words_of(field: Field, values: Sequence[int]) -> Any:
    """Little-endian words as they lie in memory."""
    prime = field.prime
    data = b"".join(value.to_bytes(4 * prime.words, "little") for value in values)
    dtype = np.uint64 if prime.words % 2 == 0 else np.uint32
    array = np.frombuffer(data, dtype).reshape(len(values), -1)
    return array[:, 0] if array.shape[1] == 1 else array


def edges(field: Field, most_borders: int = 6) -> list[int]:
    """Values at which carries, borrows and reductions change, all below the modulus: its ends, R,
    and what is around the borders of words and limbs, of which there may be many."""
    prime, p = field.prime, field.modulus
    borders = [*range(0, prime.bits, 32), *range(0, prime.bits, prime.limbs.bits)]
    taken = borders[:: max(1, len(borders) // most_borders)]
    near = [(1 << bit) + off for bit in taken for off in (-1, 0, 1)]
    values = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1, prime.r % p, prime.r**2 % p, *near]
    return sorted({value for value in values if 0 <= value < p})


def inverse_of(field: Field, value: int) -> int:
    """1 / value, and 0 for 0."""
    return pow(value, -1, field.modulus) if value else 0


def products_along(field: Field, row: Sequence[int]) -> list[int]:
    """Each element times all before it."""
    return list(accumulate(row, lambda x, y: x * y % field.modulus))


def some(field: Field, count: int, seed: int) -> list[int]:
    """Elements, a third of them edges."""
    draw, known = random.Random(seed), edges(field)
    return [
        draw.choice(known) if draw.random() < 0.3 else draw.randrange(field.modulus)
        for _ in range(count)
    ]


# --- exact transforms ---

GENERATORS = {
    "bls12_381_fr": 7,
    "bn254_fr": 5,
    "goldilocks": 7,
    "babybear": 31,
    "koalabear": 3,
}
"""What the users of these fields take roots of unity from."""


def root_of(field: Field, log_n: int) -> int:
    """The root of unity of order 2^log_n that the field's transforms take."""
    p, generator = field.modulus, GENERATORS.get(field.name)
    if generator is None:
        return field.prime.root_of_unity(log_n)
    return pow(generator, (p - 1) >> log_n, p)


def points(field: Field, log_n: int, coset: int = 1) -> list[int]:
    """Where a transform evaluates, in natural order."""
    p, root = field.modulus, root_of(field, log_n)
    return [coset * pow(root, i, p) % p for i in range(1 << log_n)]


def naive_transform(field: Field, values: Sequence[int], coset: int = 1) -> list[int]:
    """The values of the polynomial with these coefficients, one power at a time."""
    p = field.modulus
    return [
        sum(value * pow(x, i, p) for i, value in enumerate(values)) % p
        for x in points(field, len(values).bit_length() - 1, coset)
    ]


def in_reverse(values: Sequence[int]) -> list[int]:
    """Element i to where the bits of i, read backwards, say."""
    bits = len(values).bit_length() - 1
    return [values[int(f"{i:0{bits}b}"[::-1], 2)] if bits else values[i] for i in range(1 << bits)]


def in_order(values: Sequence[int], order: Order) -> list[int]:
    return in_reverse(values) if order == "reversed" else list(values)


def check_transforms(
    gpu: gx.PersistentVulkanBackend,
    place: Place,
    field: Field,
    log_n: int,
    coset: int | None = None,
) -> None:
    """From each order to each order and back from there, one row and two."""
    rows = [some(field, 1 << log_n, log_n + seed) for seed in (0, 1)]
    wanted = [naive_transform(field, row, 1 if coset is None else coset) for row in rows]
    for first, then in product(ORDERS, repeat=2):
        given = [in_order(row, first) for row in rows]
        values = [in_order(row, then) for row in wanted]
        x = made(gpu, place, field, given)
        y = field.ntt(x, coset=coset, order_in=first, order_out=then)
        assert (y.form, y.on_device, ints(y)) == (field.form, place == "card", values), (
            first,
            then,
        )
        back = field.intt(y, coset=coset, order_in=then, order_out=first)
        assert ints(back) == given, (then, first)
        assert ints(x) == given, "what came in stays"
        alone = field.ntt(x[1], coset=coset, order_in=first, order_out=then)
        assert ints(alone) == values[1]
        assert ints(field.intt(alone, coset=coset, order_in=then, order_out=first)) == given[1]


def polynomial(field: Field, coefficients: Sequence[int]) -> fmpz_mod_poly:
    """FLINT's polynomial over the field, the constant coefficient first."""
    return fmpz_mod_poly_ctx(fmpz_mod_ctx(field.modulus))(list(coefficients))


def count_puts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is put on a card from now on."""
    puts: list[Any] = []
    put = DeviceMemory.put

    def counted(self: DeviceMemory, array: Any) -> Any:
        puts.append(array)
        return put(self, array)

    monkeypatch.setattr(DeviceMemory, "put", counted)
    return puts
