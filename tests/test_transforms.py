"""Transforms: exact in every order, on cosets and in batches, with tables that are made once."""

from __future__ import annotations

import gc
import random
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from conftest import OpenGpu
from fields_under_test import (
    cards,
    edges,
    in_reverse,
    ints,
    naive_transform,
    polynomial,
    root_of,
    some,
)
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_377_FQ,
    BLS12_381_FR,
    BN254_FR,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.ops import transform
from gpu_executor.ops.transform import Order
from gpu_executor.vulkan import binding, on_card
from gpu_executor.vulkan.on_card import CardArrays

ORDERS: tuple[Order, ...] = get_args(Order)
FULL64 = Field(2**64 - 2**34 + 1, name="full 64 bits")
"""Roots of unity of order 2^34, like Goldilocks, and products like those of longer primes."""

FAMILIES = [BLS12_381_FR, GOLDILOCKS, BABYBEAR]
on_families = pytest.mark.parametrize("field", FAMILIES, ids=lambda field: field.name)

# lavapipe compiles a pass of many limbs for half a second, and another for each order.
SMALL = [(field, log_n) for field in (BLS12_381_FR, GOLDILOCKS) for log_n in range(7)]
SMALL += [(KOALABEAR, 1), (KOALABEAR, 5), (FULL64, 2), (FULL64, 6), (BN254_FR, 4)]
SMALL += [(BLS12_377_FQ, 3)]
IN_EVERY_ORDER = [(BABYBEAR, log_n) for log_n in range(7)]
IN_EVERY_ORDER += [(GOLDILOCKS, 0), (GOLDILOCKS, 1), (GOLDILOCKS, 5), (FULL64, 3)]
IN_EVERY_ORDER += [(BLS12_381_FR, 0), (BLS12_381_FR, 4)]
LARGE = [(field, log_n) for field in (GOLDILOCKS, BABYBEAR) for log_n in (8, 9, 15, 16, 17)]
LARGE += [(BLS12_381_FR, 9), (BLS12_381_FR, 16), (BN254_FR, 8), (BLS12_377_FQ, 9), (FULL64, 17)]
LARGE += [(KOALABEAR, 15)]


def of_sizes(cases: Sequence[tuple[Field, int]]) -> pytest.MarkDecorator:
    names = [f"{field.name}-{log_n}" for field, log_n in cases]
    return pytest.mark.parametrize(("field", "log_n"), cases, ids=names)


def in_order(values: Sequence[int], order: Order) -> list[int]:
    return in_reverse(values) if order == "reversed" else list(values)


def on_the_card(gpu: gx.PersistentVulkanBackend, field: Field, values: Any) -> FieldArray:
    return gpu.to_device(field.encode(values))


def check_all_ways(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int, coset: int | None = None
) -> None:
    """From each order to each order, and back from there."""
    values = some(field, 1 << log_n, log_n)
    wanted = naive_transform(field, values, 1 if coset is None else coset)
    for first, then in product(ORDERS, repeat=2):
        x = on_the_card(gpu, field, in_order(values, first))
        y = field.ntt(x, coset=coset, order_in=first, order_out=then)
        assert ints(y) == in_order(wanted, then), (first, then)
        back = field.intt(y, coset=coset, order_in=then, order_out=first)
        assert ints(back) == in_order(values, first), (then, first)
        assert ints(x) == in_order(values, first), "what came in stays"


# --- exact ---


def check_natural_order(gpu: gx.PersistentVulkanBackend, field: Field, log_n: int) -> None:
    values = some(field, 1 << log_n, log_n)
    y = field.ntt(on_the_card(gpu, field, values))
    assert ints(y) == naive_transform(field, values)
    assert ints(field.intt(y)) == values


@of_sizes(SMALL)
def test_small_transforms_are_exact(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int
) -> None:
    check_natural_order(gpu, field, log_n)


@of_sizes(IN_EVERY_ORDER)
def test_small_transforms_are_exact_in_every_order(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int
) -> None:
    check_all_ways(gpu, field, log_n)


@of_sizes([(field, log_n) for field in FAMILIES for log_n in (0, 1, 4)])
def test_transforms_on_a_coset_are_exact_in_every_order(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int
) -> None:
    for coset in (7, field.modulus - 1, -5, field.modulus + 3, 2**700 + 1):
        check_all_ways(gpu, field, log_n, coset)


@of_sizes(LARGE)
def test_large_transforms_have_the_values_of_their_polynomials(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int
) -> None:
    n, p = 1 << log_n, field.modulus
    values = some(field, n, log_n)
    y = field.ntt(on_the_card(gpu, field, values))
    found, at, root = ints(y), polynomial(field, values), root_of(field, log_n)
    for i in (0, 1, 2, n // 2, n // 2 + 1, n - 1, *random.Random(1).sample(range(n), 3)):
        assert found[i] == int(at(pow(root, i, p))), i
    assert ints(field.intt(y)) == values


@of_sizes([(GOLDILOCKS, 9), (BABYBEAR, 9), (BABYBEAR, 16)])
def test_large_transforms_are_the_same_in_every_order(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int
) -> None:
    values = some(field, 1 << log_n, 2)
    wanted = ints(field.ntt(on_the_card(gpu, field, values)))
    on_a_coset = ints(field.ntt(on_the_card(gpu, field, values), coset=11))
    at, p = polynomial(field, values), field.modulus
    assert on_a_coset[5] == int(at(11 * pow(root_of(field, log_n), 5, p) % p))
    for first, then in product(ORDERS, repeat=2):
        x = on_the_card(gpu, field, in_order(values, first))
        for coset, values_there in ((None, wanted), (11, on_a_coset)):
            y = field.ntt(x, coset=coset, order_in=first, order_out=then)
            assert ints(y) == in_order(values_there, then)
            back = field.intt(y, coset=coset, order_in=then, order_out=first)
            assert ints(back) == in_order(values, first)


@on_families
def test_every_row_of_a_batch_is_transformed(gpu: gx.PersistentVulkanBackend, field: Field) -> None:
    rows = [some(field, 16, seed) for seed in range(6)]
    array = on_the_card(gpu, field, np.array(rows, object).reshape(3, 2, 16))
    wanted = [naive_transform(field, row) for row in rows]
    y = field.ntt(array)
    assert y.shape == (3, 2, 16)
    assert ints(y.reshape(6, 16)) == wanted
    assert ints(field.intt(y).reshape(6, 16)) == rows
    reversed_order = field.ntt(array, order_out="reversed", coset=3)
    assert ints(reversed_order[1][1]) == in_reverse(naive_transform(field, rows[3], 3))
    assert ints(field.intt(reversed_order, order_in="reversed", coset=3)) == ints(array)


def test_batches_of_several_passes_are_exact(gpu: gx.PersistentVulkanBackend) -> None:
    field, log_n = BABYBEAR, 9
    rows = [some(field, 1 << log_n, seed) for seed in range(5)]
    y = field.ntt(on_the_card(gpu, field, rows))
    for row, found in zip(rows, ints(y), strict=True):
        at = polynomial(field, row)
        for i in (1, 255, 256, 511):
            assert found[i] == int(at(pow(root_of(field, log_n), i, field.modulus)))
    for order in ORDERS:
        there = field.ntt(on_the_card(gpu, field, rows), order_out=order)
        assert ints(field.intt(there, order_in=order)) == rows


@pytest.mark.parametrize("log_n", [0, 1])
def test_more_rows_than_work_groups_are_transformed(
    gpu: gx.PersistentVulkanBackend, log_n: int
) -> None:
    p, rows = BABYBEAR.modulus, 70_000
    values = np.random.default_rng(1).integers(0, p, (rows, 1 << log_n), dtype=np.int64)
    first, last = values[:, 0], values[:, -1]
    wanted = np.stack([first + last, first - last], axis=1) % p if log_n else values
    y = BABYBEAR.ntt(on_the_card(gpu, BABYBEAR, values))
    np.testing.assert_array_equal(y.in_form("canonical").numpy(), wanted)
    np.testing.assert_array_equal(BABYBEAR.intt(y).in_form("canonical").numpy(), values)


@on_families
def test_a_part_of_an_array_is_transformed_as_one(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    values = some(field, 64, 1)
    x = on_the_card(gpu, field, values)
    for start in (1, 8, 48):
        part = x[start : start + 16]
        assert ints(field.ntt(part)) == naive_transform(field, values[start : start + 16])


def test_no_rows_give_no_rows(gpu: gx.PersistentVulkanBackend) -> None:
    x = on_the_card(gpu, BABYBEAR, np.zeros((0, 8), object))
    for y in (BABYBEAR.ntt(x), BABYBEAR.intt(x), BABYBEAR.ntt(x, coset=3)):
        assert (y.shape, ints(y)) == ((0, 8), [])


# --- what transforms are for ---


@pytest.mark.parametrize(
    "field", [BLS12_381_FR, FULL64, GOLDILOCKS, KOALABEAR], ids=lambda field: field.name
)
def test_products_of_values_are_values_of_products(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    for log_n, degree in ((5, 14), (9, 200)):
        n = 1 << log_n
        a, b = some(field, degree + 1, 1), some(field, n - degree, 2)
        values = [
            field.ntt(
                on_the_card(gpu, field, [*each, *[0] * (n - len(each))]), order_out="reversed"
            )
            for each in (a, b)
        ]
        found = ints(field.intt(values[0] * values[1], order_in="reversed"))
        exact = polynomial(field, a) * polynomial(field, b)
        assert found == [int(exact[i]) for i in range(n)]


@settings(max_examples=15)
@given(data=st.data())
@on_families
def test_transforms_are_linear(
    gpu: gx.PersistentVulkanBackend, field: Field, data: st.DataObject
) -> None:
    element = st.one_of(st.sampled_from(edges(field)), st.integers(0, field.modulus - 1))
    rows = st.lists(element, min_size=16, max_size=16)
    x, y = (on_the_card(gpu, field, data.draw(rows)) for _ in range(2))
    a, b = data.draw(element), data.draw(element)
    for change in (field.ntt, field.intt):
        assert ints(change(x * a + y * b)) == ints(change(x) * a + change(y) * b)


@on_families
def test_special_polynomials_have_the_values_known(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    p, n, root = field.modulus, 16, root_of(field, 4)
    x = [int(i == 1) for i in range(n)]
    known = {
        "0": ([0] * n, [0] * n),
        "constant": ([p - 1, *[0] * (n - 1)], [p - 1] * n),
        "X": (x, [pow(root, i, p) for i in range(n)]),
        "all p - 1": ([p - 1] * n, [-n % p, *[0] * (n - 1)]),
    }
    for coefficients, values in known.values():
        assert ints(field.ntt(on_the_card(gpu, field, coefficients))) == values


# --- other cuts into passes, other tables ---


@pytest.fixture
def gpu_without_tables(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> gx.PersistentVulkanBackend:
    """One that knows pipelines, and will make tables and passes as a test has them."""
    monkeypatch.setattr(cards(gpu), "_kept", OrderedDict())
    return gpu


def two_tables(gpu: gx.PersistentVulkanBackend) -> bool:
    """Whether any pass of those kept takes its roots from two."""
    kept = [each for each in cards(gpu)._kept.values() if isinstance(each, transform.Transform)]
    return any(each.high is not each.roots for passes in kept for each in passes._in_order)


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("field", [GOLDILOCKS, BABYBEAR], ids=lambda field: field.name)
def test_passes_of_any_number_of_levels_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    levels: int,
) -> None:
    monkeypatch.setattr(transform, "LEVELS_PER_PASS", levels)
    for log_n in (3, 5):
        assert len(transform.cut(log_n, transform.LEVELS_PER_PASS)) == -(-log_n // levels)
        check_all_ways(gpu_without_tables, field, log_n)
    check_all_ways(gpu_without_tables, field, 5, coset=3)
    assert not two_tables(gpu_without_tables)


@pytest.mark.parametrize("direct_levels", [0, 3, 4])
@pytest.mark.parametrize("field", [GOLDILOCKS, BABYBEAR], ids=lambda field: field.name)
def test_roots_from_two_tables_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    field: Field,
    direct_levels: int,
) -> None:
    monkeypatch.setattr(transform, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transform, "DIRECT_LEVELS", direct_levels)
    for log_n in (1, 4, 5):
        check_all_ways(gpu_without_tables, field, log_n)
    assert two_tables(gpu_without_tables)


def test_roots_of_many_limbs_from_two_tables_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transform, "LEVELS_PER_PASS", 2)
    monkeypatch.setattr(transform, "DIRECT_LEVELS", 2)
    check_natural_order(gpu_without_tables, BLS12_381_FR, 4)
    assert two_tables(gpu_without_tables)


@pytest.mark.parametrize("row_bytes", [1, 16, 1 << 20])
def test_tiles_of_any_width_are_exact(
    gpu_without_tables: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    row_bytes: int,
) -> None:
    monkeypatch.setattr(transform, "ROW_BYTES", row_bytes)
    monkeypatch.setattr(transform, "LEVELS_PER_PASS", 3)
    check_all_ways(gpu_without_tables, BABYBEAR, 6)


def test_transforms_are_cut_into_passes_as_even_as_can_be() -> None:
    assert [
        transform.cut(log_n, transform.LEVELS_PER_PASS) for log_n in (0, 1, 8, 9, 16, 17, 24)
    ] == [
        [0],
        [1],
        [8],
        [5, 4],
        [8, 8],
        [6, 6, 5],
        [8, 8, 8],
    ]


# --- what is kept ---


def count_puts(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is put on a card from now on."""
    puts: list[Any] = []
    put = CardArrays.put

    def counted(self: CardArrays, array: Any) -> Any:
        puts.append(array)
        return put(self, array)

    monkeypatch.setattr(CardArrays, "put", counted)
    return puts


def test_tables_are_made_once(fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = fresh_gpu()
    arrays = {
        (field, log_n): on_the_card(gpu, field, [[1] * (1 << log_n)] * 2)
        for field, log_n in ((BABYBEAR, 4), (BABYBEAR, 9), (GOLDILOCKS, 4))
    }
    puts = count_puts(monkeypatch)

    def tables_of(array: FieldArray, **way: Any) -> int:
        """How many are made for a transform and its inverse, with rows and with one row."""
        before = len(puts)
        field = array.field
        for each in (array, array[:1], array[1]):
            field.ntt(each, **way)
            field.intt(each, **way)
        return len(puts) - before

    for array in arrays.values():
        assert tables_of(array) > 0
        assert tables_of(array) == 0
        assert tables_of(array, order_out="reversed") == 0, "the same passes, but for the last"
        assert tables_of(array, order_in="reversed") > 0, "passes the other way"
        assert tables_of(array, order_in="reversed", order_out="reversed") == 0
        assert tables_of(array, coset=5) == 4, "powers of 5 and of 1/5, from two tables each"
        assert tables_of(array, coset=5, order_in="reversed") == 0
        assert tables_of(array, coset=6) == 4
    for array in arrays.values():
        assert tables_of(array) == 0, "nor did the others take their place"


def test_tables_go_when_there_are_too_many(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_card, "KEPT", 2)
    gpu = fresh_gpu()
    for _ in range(2):
        for log_n in (2, 3, 4):
            check_all_ways(gpu, BABYBEAR, log_n, coset=3)
    assert len(cards(gpu)._kept) == 2


def test_tables_are_freed_when_the_backend_closes() -> None:
    before = binding.live_objects()
    with gx.PersistentVulkanBackend() as gpu:
        x = on_the_card(gpu, BABYBEAR, [1] * 512)
        y = BABYBEAR.intt(BABYBEAR.ntt(x, coset=3), coset=3) * 5
        assert ints(y) == [5] * 512
        tables = [
            weakref.ref(table.storage)
            for kept in cards(gpu)._kept.values()
            if isinstance(kept, transform.Transform | transform.Powers)
            for table in _arrays_of(kept)
        ]
        assert len(tables) > 8
        assert all(table() is not None for table in tables)
        assert binding.live_objects() != before
    gc.collect()
    assert [table() for table in tables] == [None] * len(tables)
    assert binding.live_objects() == before


def _arrays_of(kept: transform.Transform | transform.Powers) -> list[gx.DeviceArray]:
    if isinstance(kept, transform.Powers):
        return [kept.low, kept.high]
    return [table for each in kept._in_order for table in (each.roots, each.low, each.high)]


# --- what cannot be ---


@pytest.mark.parametrize("shape", [(3,), (0,), (4, 6), (5, 0), ()], ids=str)
def test_rows_of_no_power_of_two_are_refused(
    gpu: gx.PersistentVulkanBackend, shape: tuple[int, ...]
) -> None:
    x = on_the_card(gpu, BABYBEAR, np.zeros(shape, object))
    length = shape[-1] if shape else 0
    for change in (BABYBEAR.ntt, BABYBEAR.intt):
        with pytest.raises(gx.ArgumentShapeError, match=rf"rows of 2\^k elements, not of {length}"):
            change(x)


@pytest.mark.parametrize(
    ("field", "log_n"),
    [(MERSENNE31, 2), (Field(97), 6), (Field(2**255 - 19), 3)],
    ids=lambda each: getattr(each, "name", ""),
)
def test_rows_longer_than_the_order_of_any_root_are_refused(
    gpu: gx.PersistentVulkanBackend, field: Field, log_n: int
) -> None:
    x = on_the_card(gpu, field, [1] * (1 << log_n))
    for change in (field.ntt, field.intt):
        with pytest.raises(
            gx.ArgumentShapeError, match=rf"order 2\^{log_n - 1} at most.*transform of 2\^{log_n}"
        ):
            change(x)
    half = x[: len(x) // 2]
    root = pow(field.prime.generator, (field.modulus - 1) >> (log_n - 1), field.modulus)
    values = [sum(pow(root, i * j, field.modulus) for j in range(len(half))) for i in range(3)]
    assert ints(field.ntt(half))[:3] == [value % field.modulus for value in values][: len(half)]


def test_arrays_on_the_host_are_refused() -> None:
    x = BABYBEAR.encode([1, 2, 3, 4])
    for change in (BABYBEAR.ntt, BABYBEAR.intt):
        with pytest.raises(gx.ArgumentTypeError, match=r"on a card: gpu\.to_device\(array\)"):
            change(x)
