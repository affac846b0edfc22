"""Transforms whose roots belong to blocks: primes of 250 to 255 bits."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import BLS12_381_FR, Field
from gpu_executor.kernels.block_passes import LIMBS, PRIME_BITS, encode_factor
from gpu_executor.ops import block_transforms
from gpu_executor.ops.block_transforms import BlockPasses, get_root_table, split_levels
from gpu_executor.ops.transforms import Order, TransformPasses
from tests.support.device_arrays import get_device_memory
from tests.support.fields_under_test import (
    ORDERS,
    check_extension,
    check_order,
    check_transforms,
    draw_elements,
    find_prime,
    make_polynomial,
    reverse_bits,
    to_ints,
    transform_naively,
)

PARTS = {249: 2**237 - 181, 250: 2**237 + 11231, 255: 2**243 - 15385, 256: 2**244 - 16779}
"""Primes q such that 2^12 q + 1 is about the smallest prime of 250 bits and the largest one of the
other lengths. The factors of its order are known, which would take seconds to find."""


def make_field(bits: int) -> Field:
    field = Field((PARTS[bits] << 12) + 1, factors=[PARTS[bits]])
    assert field.prime.bits == bits
    return field


def list_kinds(gpu: gx.PersistentVulkanBackend) -> set[type]:
    """The kinds of passes in the cache."""
    values = [cached.value for cached in get_device_memory(gpu)._cache.values()]
    return {type(each) for each in values if isinstance(each, TransformPasses | BlockPasses)}


def test_transforms_of_one_pass_are_exact(gpu_without_tables: gx.PersistentVulkanBackend) -> None:
    check_transforms(gpu_without_tables, "device", BLS12_381_FR, 3, coset=5)
    check_order(gpu_without_tables, BLS12_381_FR, 1, "natural", "natural")
    assert list_kinds(gpu_without_tables) == {BlockPasses}


def test_transforms_of_two_passes_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
) -> None:
    for order in ORDERS:
        check_order(gpu_without_tables, BLS12_381_FR, 9, order, order)
    assert list_kinds(gpu_without_tables) == {BlockPasses}


def split_small(monkeypatch: pytest.MonkeyPatch, levels: int, log_tile: int) -> None:
    """Make passes of few levels and small tiles."""
    monkeypatch.setattr(block_transforms, "LEVELS_PER_PASS", levels)
    monkeypatch.setattr(block_transforms, "LOG_TILE", log_tile)


@pytest.mark.parametrize(
    ("levels", "log_tile", "orders"),
    [
        (1, 1, [("natural", "reversed")]),
        (2, 5, [*product(ORDERS, ORDERS)]),
        (4, 4, [("reversed", "reversed")]),
    ],
    ids=["1-1", "2-5", "4-4"],
)
def test_passes_of_any_number_of_levels_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    levels: int,
    log_tile: int,
    orders: Iterable[tuple[Order, Order]],
) -> None:
    split_small(monkeypatch, levels, log_tile)
    for first, then in orders:
        check_order(gpu_without_tables, BLS12_381_FR, 5, first, then)
    assert list_kinds(gpu_without_tables) == {BlockPasses}


@pytest.mark.parametrize(
    ("log_n", "blowup", "coset"), [(0, 8, None), (1, 2, 5), (2, 4, None), (3, 2, None), (4, 8, 3)]
)
def test_extensions_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    log_n: int,
    blowup: int,
    coset: int | None,
) -> None:
    split_small(monkeypatch, 2, 3)
    check_extension(gpu_without_tables, "device", BLS12_381_FR, log_n, blowup, coset)
    assert BlockPasses in list_kinds(gpu_without_tables)


def test_polynomials_are_padded_in_the_first_of_several_passes(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    split_small(monkeypatch, 2, 3)
    for long, short in ((2, 3), (16, 1), (19, 13)):
        a = [draw_elements(BLS12_381_FR, long, seed) for seed in range(3)]
        b = draw_elements(BLS12_381_FR, short, 9)
        x, y = (gpu_without_tables.to_device(BLS12_381_FR.encode(each)) for each in (a, b))
        exact = [make_polynomial(BLS12_381_FR, row) * make_polynomial(BLS12_381_FR, b) for row in a]
        wanted = [[int(each[i]) for i in range(long + short - 1)] for each in exact]
        assert to_ints(BLS12_381_FR.poly_mul(x, y)) == wanted


@pytest.mark.parametrize("bits", [PRIME_BITS[0], PRIME_BITS[-1]])
def test_the_largest_sums_of_the_shortest_and_longest_primes_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend, bits: int
) -> None:
    field = make_field(bits)
    p, n = field.modulus, 256
    unmontgomery = pow(field.prime.r, -1, p)  # elements whose words are p - 1
    for values in ([-unmontgomery % p] * n, [-unmontgomery * (i % 2) % p for i in range(n)]):
        x = gpu_without_tables.to_device(field.encode(values).in_form(field.form))
        y = field.ntt(x, order_in="reversed")
        assert to_ints(y.to_host()) == transform_naively(field, reverse_bits(values))
        assert to_ints(field.intt(y, order_out="reversed").to_host()) == values
    assert list_kinds(gpu_without_tables) == {BlockPasses}


@pytest.mark.parametrize("bits", [PRIME_BITS[0] - 1, PRIME_BITS[-1] + 1])
def test_primes_of_other_lengths_have_twiddles(
    gpu_without_tables: gx.PersistentVulkanBackend, bits: int
) -> None:
    field = make_field(bits)
    check_order(gpu_without_tables, field, 2, "natural", "natural")
    assert list_kinds(gpu_without_tables) == {TransformPasses}


def test_transforms_whose_roots_take_too_much_memory_have_twiddles(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_transforms, "MAX_LOG_LENGTH", 3)
    check_order(gpu_without_tables, BLS12_381_FR, 4, "natural", "natural")
    check_extension(gpu_without_tables, "device", BLS12_381_FR, 3, 2, 5)
    assert TransformPasses in list_kinds(gpu_without_tables)


def test_more_rows_than_one_grid_covers_are_transformed(gpu: gx.PersistentVulkanBackend) -> None:
    field, rows = BLS12_381_FR, np.arange(70_000)
    x, wanted = (
        field.encode(np.stack(each, axis=1))
        for each in ((2 * rows + 1, rows), (3 * rows + 1, rows + 1))
    )
    y = field.ntt(gpu.to_device(x))
    assert (y.to_host() == wanted).all()
    assert (field.intt(y).to_host() == x).all()


def test_a_graph_may_be_the_first_to_use_the_roots(
    gpu_without_tables: gx.PersistentVulkanBackend,
) -> None:
    values = draw_elements(BLS12_381_FR, 16, 1)
    x = gpu_without_tables.to_device(BLS12_381_FR.encode(values))
    with gpu_without_tables.graph() as graph:
        y = BLS12_381_FR.ntt(x)
    wanted = transform_naively(BLS12_381_FR, values)
    assert to_ints(BLS12_381_FR.ntt(x)) == wanted  # before the graph has run
    graph()
    assert to_ints(y) == wanted


def test_roots_are_factors_in_bit_reversed_order(gpu: gx.PersistentVulkanBackend) -> None:
    prime = BLS12_381_FR.prime
    table = get_root_table(get_device_memory(gpu), prime, 1, inverse=False)
    found = table.factors.numpy()
    root, bits = prime.root_of_unity(table.length.bit_length()), table.length.bit_length() - 1
    for i in (0, 1, 2, 3, 1000, table.length - 1):
        power = pow(root, int(f"{i:0{bits}b}"[::-1], 2), prime.modulus)
        words = [found[(k // 4 * table.length + i) * 4 + k % 4] for k in range(16)]
        words += [found[(8 * table.length + i) * 2 + k] for k in range(2)]
        assert join(words[:9]) == power
        assert [int(word) for word in words] == encode_factor(prime, power).tolist()


def join(limbs: Any) -> int:
    return sum(int(limb) << LIMBS.bits * i for i, limb in enumerate(limbs))


def test_levels_are_split_into_passes() -> None:
    assert [split_levels(log_n) for log_n in (1, 8, 9, 16, 17, 20, 21, 22, 23, 24)] == [
        [1],
        [8],
        [4, 5],
        [8, 8],
        [5, 6, 6],
        [6, 7, 7],
        [7, 7, 7],
        [7, 7, 8],
        [5, 6, 6, 6],
        [6, 6, 6, 6],
    ]


def test_limbs_have_room_for_the_numbers_of_eight_levels() -> None:
    """The bounds of glsl/shoup.glsl, for the largest prime and the largest number of levels."""
    p, carried = find_prime(PRIME_BITS[-1], largest=True), (1 << LIMBS.bits) + 2
    value = bound_product(p, 1, p)  # of a number at first, if the pass scales
    sums = 1  # of carried limbs in a limb of u and of v
    for level in range(8):
        product = bound_product(p, sums, value)
        assert product < 1 << 260
        if level > 0 and level % 2 == 0:
            sums = 1  # u is carried
        sums, value = sums + 1, value + product
        assert carried * sums < 1 << 31
    assert value < 190 * p
    assert value >> 232 < 3 * carried  # the topmost limb


def bound_product(p: int, sums: int, value: int) -> int:
    """The largest absolute value of a product by a factor, of a number whose limbs are sums of so
    many carried ones."""
    limb, most = sums * ((1 << LIMBS.bits) + 2), (1 << LIMBS.bits) - 1
    negative = limb * (sums - 1) // sums + 2
    carry = 1 << 36
    assert 9 * limb * most + carry < 1 << 63  # columns of the upper half fit 64 bits
    assert 8 * limb * most + carry < 1 << 63  # and those of the lower halves
    assert 8 * (negative * most + most * most) + carry < 1 << 63
    missing = sum((k + 1) * limb * most << LIMBS.bits * k for k in range(8))
    # The quotient is rounded down, and so is that of the factor, by 1 + 1/64 at most.
    return ((missing >> 261) + 1 + (value + value // 64 >> 261) + 2) * p
