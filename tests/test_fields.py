"""Fields: every operation exact on the host and on the card, forms that are types, chains on the
card that nobody waits for, and what cannot be is refused in words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from conftest import OpenGpu
from fields_under_test import (
    NAMED,
    ONE_OF_EACH,
    OTHERS,
    Place,
    edges,
    in_both_places,
    ints,
    made,
    on_every_field,
    on_one_of_each,
    some,
)
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    BN254_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.fields.array import Form
from gpu_executor.fields.field import AT_ONCE
from gpu_executor.vulkan import chain as chain_module
from gpu_executor.vulkan.on_card import CardArrays
from gpu_executor.vulkan.timeline import Timeline

Operation = Callable[..., FieldArray]
Exact = Callable[..., int]

FR = BLS12_381_FR
P = FR.modulus

ELEMENTWISE: dict[str, tuple[int, Operation, Exact]] = {
    "add": (2, Field.add, lambda a, b: a + b),
    "sub": (2, Field.sub, lambda a, b: a - b),
    "mul": (2, Field.mul, lambda a, b: a * b),
    "neg": (1, Field.neg, lambda a: -a),
    "double": (1, Field.double, lambda a: 2 * a),
    "square": (1, Field.square, lambda a: a * a),
    "fma": (3, Field.fma, lambda a, b, c: a * b + c),
}
"""Operands, the operation, and its outcome on integers but for a multiple of p."""


def inverse_of(field: Field, value: int) -> int:
    return pow(value, -1, field.modulus) if value else 0


def products_along(field: Field, row: Sequence[int]) -> list[int]:
    return list(accumulate(row, lambda x, y: x * y % field.modulus))


def dot_of(field: Field, a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True)) % field.modulus


def in_rows(values: Sequence[int], columns: int) -> list[Sequence[int]]:
    return [values[start : start + columns] for start in range(0, len(values), columns)]


# --- arithmetic ---


@pytest.mark.parametrize("operation", ELEMENTWISE)
@in_both_places
@on_every_field
def test_every_operation_is_exact(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place, operation: str
) -> None:
    count, apply, exact = ELEMENTWISE[operation]
    pairs = list(product(edges(field), repeat=2))
    ends = random.Random(1).choices(edges(field), k=len(pairs))
    columns = [*zip(*pairs, strict=True), ends]
    values = [[*column, *some(field, 200, seed)] for seed, column in enumerate(columns)][:count]
    result = apply(field, *(made(gpu, place, field, each) for each in values))
    assert (result.field, result.form, result.on_card) == (field, field.form, place == "card")
    assert ints(result) == [exact(*row) % field.modulus for row in zip(*values, strict=True)]


@in_both_places
@on_every_field
def test_equality_tells_every_pair_of_edges_apart(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    pairs = list(product(edges(field), repeat=2))
    a, b = (made(gpu, place, field, [pair[side] for pair in pairs]) for side in (0, 1))
    found = field.equal(a, b)
    assert (found.dtype, found.shape) == (np.dtype(bool), a.shape)
    assert found.tolist() == [x == y for x, y in pairs]


@in_both_places
@on_every_field
def test_elements_are_selected_by_a_condition(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    values, others = some(field, 60, 1), some(field, 60, 2)
    condition = [i % 3 == 0 for i in range(60)]
    a, b = (made(gpu, place, field, each) for each in (values, others))
    wanted = [x if chosen else y for chosen, x, y in zip(condition, values, others, strict=True)]
    assert ints(field.select(condition, a, b)) == wanted
    by_zero = [x if chosen else 0 for chosen, x in zip(condition, values, strict=True)]
    assert ints(field.select(np.array(condition), a, 0)) == by_zero


def check_inverses(array: FieldArray, values: Sequence[int]) -> None:
    wanted = [inverse_of(array.field, value) for value in values]
    assert ints(array.field.inverse(array)) == wanted


@on_every_field
def test_inverses_are_exact_and_zero_stays_zero(
    gpu: gx.PersistentVulkanBackend, field: Field
) -> None:
    values = [*edges(field), *some(field, 30, 1)]
    check_inverses(made(gpu, "card", field, values), values)


@pytest.mark.parametrize("field", [*ONE_OF_EACH, *OTHERS[:5]], ids=lambda field: field.name)
def test_inverses_on_the_host_are_exact_and_zero_stays_zero(field: Field) -> None:
    values = [*edges(field), *some(field, 30, 1)]
    check_inverses(field.encode(values), values)


@in_both_places
@pytest.mark.parametrize("field", [*NAMED, *OTHERS[:-1]], ids=lambda field: field.name)
def test_sums_and_products_along_rows_are_exact(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    p, last = field.modulus, [field.modulus - 1] * 40  # the largest sums
    rows, others = (in_rows([*last, *some(field, 80, seed)], 40) for seed in (1, 2))
    a, b = (made(gpu, place, field, each) for each in (rows, others))
    assert ints(field.sum(a, axis=-1)) == [sum(row) % p for row in rows]
    assert ints(field.dot(a, b, axis=-1)) == [
        dot_of(field, x, y) for x, y in zip(rows, others, strict=True)
    ]
    nonzero = [[value or 1 for value in row] for row in rows]
    nonzero[1][3] = 0  # all behind it are 0, and the next row is not
    running = field.prefix_product(made(gpu, place, field, nonzero))
    assert ints(running) == [products_along(field, row) for row in nonzero]


@on_one_of_each
def test_sums_of_all_elements_are_exact(gpu: gx.PersistentVulkanBackend, field: Field) -> None:
    values, others = some(field, 120, 1), some(field, 120, 2)
    a, b = (made(gpu, "card", field, in_rows(each, 24)) for each in (values, others))
    assert (field.sum(a).shape, ints(field.sum(a))) == ((), sum(values) % field.modulus)
    assert (field.dot(a, b).shape, ints(field.dot(a, b))) == ((), dot_of(field, values, others))


def exponents(field: Field, place: Place) -> Iterator[int]:
    order, huge = field.modulus - 1, 4000 if place == "card" else 400
    yield from (0, 1, 2, 3, 65537, 2**32 - 1, 2**32, order, order + 1)
    yield from (-1, -2, -order, -order - 1, -(2**300) - 1)
    yield 2**huge + 2 ** (huge // 3) - 5


@in_both_places
@pytest.mark.parametrize(
    "field", [*ONE_OF_EACH, *OTHERS[:1], *OTHERS[4:6]], ids=lambda field: field.name
)
def test_powers_are_exact_by_any_exponent(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    values = [*edges(field)[:12], *some(field, 5, 1)]
    array = made(gpu, place, field, values)
    for exponent in exponents(field, place):
        bases = values if exponent >= 0 else [inverse_of(field, value) for value in values]
        wanted = [pow(base, abs(exponent), field.modulus) for base in bases]
        assert ints(array**exponent) == wanted, exponent


@in_both_places
def test_an_inverse_of_zero_is_an_error_where_that_is_asked_for(
    gpu: gx.PersistentVulkanBackend, place: Place
) -> None:
    values = [3, 5, 0, 7, 0]
    array = made(gpu, place, FR, values)
    with pytest.raises(ZeroDivisionError, match="bls12_381_fr: element 2 is 0"):
        FR.inverse(array, zero="error")
    kept = FR.inverse(array[:2], zero="error")
    assert ints(kept) == [inverse_of(FR, value) for value in values[:2]]
    assert ints(FR.inverse(array, zero="zero")) == [inverse_of(FR, value) for value in values]


@st.composite
def triples(draw: st.DrawFn, field: Field) -> list[list[int]]:
    """Three lists of as many elements."""
    element = st.one_of(st.sampled_from(edges(field)), st.integers(0, field.modulus - 1))
    rows = draw(st.lists(st.tuples(element, element, element), min_size=1, max_size=5))
    return [list(column) for column in zip(*rows, strict=True)]


@settings(max_examples=10)
@given(data=st.data())
@in_both_places
@on_one_of_each
def test_the_axioms_of_a_field_hold(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place, data: st.DataObject
) -> None:
    values = data.draw(triples(field))
    a, b, c = (made(gpu, place, field, each) for each in values)
    zeros, ones = [0] * len(a), [1] * len(a)
    assert ints((a + b) + c) == ints(a + (b + c))
    assert ints((a * b) * c) == ints(a * (b * c))
    assert ints(a + b) == ints(b + a)
    assert ints(a * b) == ints(b * a)
    assert ints(a * (b + c)) == ints(a * b + a * c)
    assert ints(a + 0) == ints(a * 1) == values[0]
    assert ints(a + -a) == ints(a - a) == ints(a * 0) == zeros
    assert ints(a - b) == ints(a + -b)
    assert ints(a * field.inverse(a)) == [int(value != 0) for value in values[0]]
    assert ints(a**0) == ones
    assert ints(a**3) == ints(field.square(a) * a)


# --- operands ---


@in_both_places
@on_one_of_each
def test_any_integer_stands_for_an_element(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    p, values = field.modulus, edges(field)
    x = made(gpu, place, field, values)
    for number in (0, 7, -1, p - 1, p, p + 1, -3 * p - 2, 2**800 + 1, np.int64(-9), np.uint8(9)):
        integer = int(number)
        assert ints(x + number) == ints(number + x) == [(v + integer) % p for v in values]
        assert ints(x * number) == ints(number * x) == [v * integer % p for v in values]
        assert ints(x - number) == [(v - integer) % p for v in values]
        assert ints(number - x) == [(integer - v) % p for v in values]
        assert (x == number).tolist() == [v == integer % p for v in values]
        assert ints(field.fma(x, number, -2)) == [(v * integer - 2) % p for v in values]


@in_both_places
@on_one_of_each
def test_shorter_operands_meet_every_row(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    p, shape = field.modulus, (2, 3, 5)
    cube = np.array(some(field, 30, 1), object).reshape(shape)
    square = np.array(some(field, 15, 2), object).reshape(shape[1:])
    row = np.array(some(field, 5, 3), object)
    single = np.array([5], object)
    x, y, z, one = (made(gpu, place, field, each) for each in (cube, square, row, single))
    for other, exact in ((y, square), (z, row), (one, single), (one[0], single)):
        for result, wanted in (
            (x + other, cube + exact),
            (other + x, cube + exact),
            (x - other, cube - exact),
            (x * other, cube * exact),
            (other * x, cube * exact),
            (field.fma(x, other, x), cube * exact + cube),
            (field.fma(x, x, other), cube * cube + exact),
            (field.fma(x, other, z), cube * exact + row),
            (field.fma(x, y, other), cube * square + exact),
        ):
            assert result.shape == shape
            assert ints(result) == (wanted % p).tolist()
        for found in (x == other, other == x):
            assert found.tolist() == (cube == np.broadcast_to(exact, shape)).tolist()
    assert ints(field.dot(x, z, axis=-1)) == ((cube * row).sum(axis=-1) % p).tolist()


def test_more_elements_than_work_groups_take_at_once(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain_module, "choose_work_groups", lambda *_: (64, 1))
    gpu, field = fresh_gpu(), BABYBEAR
    p, draw = field.modulus, np.random.default_rng(1)
    a, b = (draw.integers(0, p, AT_ONCE + 65, dtype=np.uint32) for _ in range(2))
    x, y = (gpu.to_device(field.from_words(each, "canonical")) for each in (a, b))
    wide_a, wide_b = a.astype(np.uint64), b.astype(np.uint64)

    def words(array: FieldArray) -> Any:
        return array.in_form("canonical").numpy()

    np.testing.assert_array_equal(words(x), a)
    np.testing.assert_array_equal(words(x + y), (wide_a + wide_b) % p)
    np.testing.assert_array_equal(words(x * y), wide_a * wide_b % p)
    np.testing.assert_array_equal(words(x * 3), wide_a * 3 % p)
    np.testing.assert_array_equal(x == y, a == b)
    np.testing.assert_array_equal(words(x**2), wide_a * wide_a % p)
    np.testing.assert_array_equal(words(field.inverse(x) * x), (a != 0).astype(np.uint32))
    assert ints(field.sum(x)) == int(wide_a.sum()) % p


# --- shapes ---


@in_both_places
@on_one_of_each
def test_arrays_without_elements_have_results_without_elements(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    for shape in ((0,), (0, 4), (3, 0)):
        x = made(gpu, place, field, np.zeros(shape, object))
        results = [x + x, x - x, x * x, -x, x**5, x**-1, field.fma(x, x, x), field.square(x)]
        results += [field.double(x), field.inverse(x), field.prefix_product(x)]
        results += [field.inverse(x, zero="error")]
        assert {result.shape for result in results} == {shape}
        assert (x.size, len(x), ints(results[0])) == (0, shape[0], np.zeros(shape).tolist())
        assert field.equal(x, x).shape == shape
        assert ints(field.sum(x)) == ints(field.dot(x, x)) == 0
        assert ints(field.sum(x, axis=-1)) == np.zeros(shape[:-1], int).tolist()


@in_both_places
@on_one_of_each
def test_arrays_without_axes_are_single_elements(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    p = field.modulus
    x, y = made(gpu, place, field, 5), made(gpu, place, field, p - 3)
    results = [x + y, x - y, y * x, -x, x**3, 7 - x, x + 7, field.inverse(x), field.square(x)]
    results.append(field.prefix_product(x))
    wanted = [2, 8, -15, -5, 125, 2, 12, pow(5, -1, p), 25, 5]
    assert [(result.shape, result.size) for result in results] == [((), 1)] * len(wanted)
    assert [ints(result) for result in results] == [value % p for value in wanted]
    assert (bool(x == 5), bool(x == y), field.equal(x, y).shape) == (True, False, ())
    row = made(gpu, place, field, [1, 2, 3])
    assert ints(row + x) == ints(x + row) == [6, 7, 8]
    assert ints(row - x) == [value % p for value in (-4, -3, -2)]


@in_both_places
@on_one_of_each
def test_slices_and_shapes_have_the_elements_that_they_say(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    values = np.array(some(field, 48, 1), object).reshape(3, 16)
    x, flat = made(gpu, place, field, values), values.reshape(-1).tolist()
    assert (x.shape, x.ndim, x.size, len(x)) == ((3, 16), 2, 48, 3)
    assert x.nbytes == 48 * field.prime.element_bytes
    assert ints(x[1]) == values[1].tolist()
    assert ints(x[-1][4:8]) == values[-1, 4:8].tolist()
    assert ints(x[1:]) == values[1:].tolist()
    assert ints(x[:0]) == []
    assert ints(x.reshape(48)) == ints(x.reshape(-1)) == flat
    assert ints(x.reshape(2, -1, 4)) == values.reshape(2, -1, 4).tolist()
    assert ints(x.reshape(-1)[8]) == flat[8]
    assert (
        ints(x[0] * x[2] + x[1]) == ((values[0] * values[2] + values[1]) % field.modulus).tolist()
    )
    for start in (1, 2, 3, 7):  # wherever it begins in memory
        part = x.reshape(-1)[start:]
        assert ints(part) == flat[start:]
        assert ints(part + 1) == [(value + 1) % field.modulus for value in flat[start:]]
        assert ints(part[0] * part[1]) == flat[start] * flat[start + 1] % field.modulus
    assert [ints(x[row]) for row in range(len(x))] == values.tolist()


@on_one_of_each
def test_slices_on_the_host_are_those_of_numpy(field: Field) -> None:
    values = np.array(some(field, 24, 1), object).reshape(4, 6)
    x = field.encode(values)
    for item in (np.s_[::2], np.s_[::-1], np.s_[1, 2], np.s_[1:3, ::2], np.s_[:, 4], [2, 0, 2]):
        wanted = np.array(values[item] * 2 % field.modulus, object)
        found = x[item] * 2
        assert (found.shape, ints(found)) == (wanted.shape, wanted.tolist())


# --- integers, bytes, words ---


@in_both_places
@on_every_field
def test_integers_come_back_as_they_were(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    values = [*edges(field), *some(field, 50, 1)]
    array = made(gpu, place, field, values)
    assert array.ints().dtype == object
    assert ints(array) == values
    assert ints(array.to_host()) == values
    reduced = field.encode([-1, field.modulus, 2**900 + 1], reduce=True)
    assert ints(reduced) == [field.modulus - 1, 0, (2**900 + 1) % field.modulus]


@in_both_places
@pytest.mark.parametrize("byteorder", ["big", "little"])
@on_every_field
def test_bytes_come_back_as_they_were(
    gpu: gx.PersistentVulkanBackend, field: Field, byteorder: Any, place: Place
) -> None:
    values = [*edges(field), *some(field, 50, 1)]
    usual = -(-field.modulus.bit_length() // 8)
    for width, asked in ((usual, None), (usual + 5, usual + 5)):
        data = b"".join(value.to_bytes(width, byteorder) for value in values)
        array = field.from_bytes(data, byteorder=byteorder, width=asked)
        if place == "card":
            array = gpu.to_device(array)
        assert ints(array) == values
        found = field.to_bytes(array, byteorder=byteorder, width=asked)
        assert (found.shape, found.tobytes()) == ((len(values), width), data)
        again = field.from_bytes(found.reshape(1, -1, width), byteorder=byteorder, width=asked)
        assert (again.shape, ints(again)) == ((1, len(values)), [values])


def words_of(field: Field, values: Sequence[int]) -> Any:
    """Little-endian words as they lie in memory."""
    prime = field.prime
    data = b"".join(value.to_bytes(4 * prime.words, "little") for value in values)
    dtype = np.uint64 if prime.words % 2 == 0 else np.uint32
    array = np.frombuffer(data, dtype).reshape(len(values), -1)
    return array[:, 0] if array.shape[1] == 1 else array


@in_both_places
@on_every_field
def test_both_forms_of_words_are_the_same_elements(
    gpu: gx.PersistentVulkanBackend, field: Field, place: Place
) -> None:
    values = [*edges(field), *some(field, 20, 1)]
    plain = words_of(field, values)
    arrays = [field.from_words(plain, "canonical")]
    np.testing.assert_array_equal(field.encode(values).numpy(), plain)
    if field.form == "montgomery":
        r = 2 ** (32 * field.prime.words)
        by_r = words_of(field, [value * r % field.modulus for value in values])
        arrays.append(field.from_words(by_r, "montgomery"))
    assert [array.form for array in arrays] == ["canonical", "montgomery"][: len(arrays)]
    if place == "card":
        arrays = [gpu.to_device(array) for array in arrays]
        assert {array.form for array in arrays} == {field.form}
    for array, other in product(arrays, repeat=2):
        assert ints(array) == values
        assert (array == other).all()
        assert ints(array + other) == [2 * value % field.modulus for value in values]
        np.testing.assert_array_equal(array.in_form("canonical").numpy(), plain)
        if field.form == "montgomery":
            np.testing.assert_array_equal(array.in_form("montgomery").numpy(), by_r)


def test_the_goldilocks_and_mersenne31_fields_compute_on_words_as_they_are() -> None:
    canonical = {field.name for field in NAMED if field.form == "canonical"}
    assert canonical == {"goldilocks", "mersenne31"}
    assert {Field(field.modulus).form for field in (GOLDILOCKS, MERSENNE31)} == {"canonical"}


def test_arrays_say_what_they_are(gpu: gx.PersistentVulkanBackend) -> None:
    host = FR.encode([[1, 2], [3, 4]])
    assert repr(host) == "<FieldArray (2, 2) of bls12_381_fr on the host, canonical form>"
    there = gpu.to_device(host)
    assert repr(there) == "<FieldArray (2, 2) of bls12_381_fr on the card, montgomery form>"
    assert repr(FR) == "<Field bls12_381_fr>"


def test_fields_of_one_prime_are_one_field(gpu: gx.PersistentVulkanBackend) -> None:
    again = Field(P)
    assert again == FR
    assert hash(again) == hash(FR)
    assert again != BABYBEAR
    assert ints(again.add(gpu.to_device(FR.encode([1])), 1)) == [2]


# --- chains ---


def long_chain(field: Field, x: FieldArray, y: FieldArray) -> FieldArray:
    """Fifty operations, each on what the one before it made."""
    for step in range(10):
        x = x * y
        x = field.fma(x, y, x)
        x = x - 7
        x = field.prefix_product(x) if step == 4 else field.square(x)
        x = field.inverse(x) if step % 5 == 0 else -x
    return x


def exact_chain(field: Field, x: list[int], y: list[int]) -> list[int]:
    p = field.modulus
    for step in range(10):
        x = [(a * b * b + a * b - 7) % p for a, b in zip(x, y, strict=True)]
        x = products_along(field, x) if step == 4 else [a * a % p for a in x]
        x = [inverse_of(field, a) if step % 5 == 0 else -a % p for a in x]
    return x


@pytest.mark.parametrize("field", [FR, GOLDILOCKS], ids=lambda field: field.name)
def test_fifty_operations_are_submitted_without_a_wait(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, field: Field
) -> None:
    gpu = fresh_gpu()
    values, others = some(field, 300, 1), some(field, 300, 2)
    x, y = (gpu.to_device(field.encode(each)) for each in (values, others))
    _ = x - 7, x**2, field.inverse(x)  # an integer and an exponent come to the card once
    chain, waits, wait = x.card.chain, [], Timeline.wait  # type: ignore[attr-defined]

    def counted(self: Timeline, *arguments: Any, **options: Any) -> None:
        waits.append(arguments)
        wait(self, *arguments, **options)

    chain.wait()
    monkeypatch.setattr(Timeline, "wait", counted)
    before = chain.submissions
    result = long_chain(field, x, y)
    assert (chain.submissions - before, len(waits)) == (50, 0)
    assert ints(result) == exact_chain(field, values, others)
    assert len(waits) > 0


def test_an_integer_comes_to_the_card_once(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, puts, put = fresh_gpu(), [], CardArrays.put
    x = gpu.to_device(BABYBEAR.encode([1, 2, 3]))
    y = gpu.to_device(BABYBEAR.encode([4]))

    def counted(self: CardArrays, array: Any) -> Any:
        puts.append(array)
        return put(self, array)

    monkeypatch.setattr(CardArrays, "put", counted)
    for _ in range(3):
        assert ints((x + 7) * 7 - (7 + BABYBEAR.modulus)) == [49, 56, 63]
        assert ints(y + 7) == [11]
        assert ints(x**7) == [1, 128, 2187]
    assert len(puts) == 2


# --- what cannot be ---


Use = Callable[[FieldArray], object]

OF_ANOTHER_FIELD: dict[str, Use] = {
    "add": lambda x: x + BN254_FR.encode([1, 2, 3, 4]),
    "from the left": lambda x: BN254_FR.encode([1, 2, 3, 4]) * x,
    "equal": lambda x: x == BN254_FR.encode([1, 2, 3, 4]),
    "fma": lambda x: FR.fma(x, x, BN254_FR.encode([1])),
    "power": lambda x: BN254_FR.power(x, 2),
    "inverse": BN254_FR.inverse,
    "sum": BN254_FR.sum,
    "prefix_product": BN254_FR.prefix_product,
    "ntt": BN254_FR.ntt,
    "decode": BN254_FR.decode,
    "to_bytes": BN254_FR.to_bytes,
}


@pytest.mark.parametrize("use", OF_ANOTHER_FIELD.values(), ids=OF_ANOTHER_FIELD.keys())
def test_an_array_of_another_field_is_refused(use: Use) -> None:
    with pytest.raises(gx.ArgumentTypeError, match=r"an array of .*, and this is "):
        use(FR.encode([1, 2, 3, 4]))


def test_operands_in_two_places_are_refused(fresh_gpu: OpenGpu) -> None:
    gpu, other = fresh_gpu(), fresh_gpu()
    host = BABYBEAR.encode([1, 2])
    here, there = gpu.to_device(host), other.to_device(host)
    for a, b in ((host, here), (here, host), (here, there)):
        for use in (BABYBEAR.add, BABYBEAR.sub, BABYBEAR.equal, BABYBEAR.dot):
            with pytest.raises(gx.ArgumentTypeError, match="on the host and on a card, or on two"):
                use(a, b)
        with pytest.raises(gx.ArgumentTypeError, match="to_device"):
            BABYBEAR.fma(a, a, b)
    with pytest.raises(gx.ArgumentTypeError, match="on a card already"):
        other.to_device(here)
    with pytest.raises(gx.ArgumentTypeError, match="the array is on the host"):
        _ = host.card


def test_an_array_of_a_closed_backend_is_refused(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    x = gpu.to_device(BABYBEAR.encode([1, 2]))
    gpu.close()
    for use in (lambda: x + x, lambda: ints(x), lambda: BABYBEAR.ntt(x)):
        with pytest.raises(gx.ClosedError):
            use()


@in_both_places
@pytest.mark.parametrize("operand", [0.5, 2.0, True, np.True_, None, "7", [1, 2], np.arange(3)])
def test_operands_that_are_no_elements_are_refused(
    gpu: gx.PersistentVulkanBackend, place: Place, operand: Any
) -> None:
    x = made(gpu, place, FR, [1, 2, 3])
    uses: list[Callable[[], object]] = [
        lambda: x + operand,
        lambda: operand - x,
        lambda: x * operand,
        lambda: x == operand,
        lambda: FR.fma(x, operand, 1),
    ]
    for use in uses:
        with pytest.raises(gx.ArgumentTypeError, match="a FieldArray or an integer, not a"):
            use()


@in_both_places
def test_shapes_that_do_not_go_together_are_refused(
    gpu: gx.PersistentVulkanBackend, place: Place
) -> None:
    for one, other in (((4,), (3,)), ((2, 4), (2,)), ((2, 4), (2, 1)), ((2, 4), (4, 2))):
        x, y = (made(gpu, place, FR, np.zeros(shape, object)) for shape in (one, other))
        for use in (FR.add, FR.sub, FR.mul, FR.equal, FR.dot):
            with pytest.raises(gx.ArgumentShapeError, match="do not go together"):
                use(x, y)
        with pytest.raises(gx.ArgumentShapeError, match="do not go together"):
            FR.fma(x, x, y)
    x = made(gpu, place, FR, [[1, 2], [3, 4]])
    for axis in (0, 1, -2):
        with pytest.raises(gx.ArgumentShapeError, match="axis is -1, the last, or None"):
            FR.sum(x, axis=axis)  # type: ignore[arg-type]


def test_operations_want_arrays(gpu: gx.PersistentVulkanBackend) -> None:
    wanted = "a FieldArray is wanted, not a int; encode"
    for use in (FR.inverse, FR.sum, FR.prefix_product, FR.ntt, FR.decode, FR.to_bytes):
        with pytest.raises(gx.ArgumentTypeError, match=wanted):
            use(7)  # type: ignore[arg-type]
    with pytest.raises(gx.ArgumentTypeError, match="one operand at least is a FieldArray"):
        FR.add(3, 4)


@on_every_field
def test_elements_that_are_not_below_the_modulus_are_refused(field: Field) -> None:
    p, words, message = field.modulus, field.prime.words, "element 2 .* not below the modulus"
    for bad in (p, p + 1, 2 ** (32 * words) - 1):
        values = [0, p - 1, bad, 1]
        with pytest.raises(gx.ElementRangeError, match=message):
            field.encode(values)
        forms: set[Form] = {"canonical", field.form}
        for form in forms:
            with pytest.raises(gx.ElementRangeError, match=message):
                field.from_words(words_of(field, values), form)
        data = b"".join(value.to_bytes(4 * words, "big") for value in values)
        with pytest.raises(gx.ElementRangeError, match=message):
            field.from_bytes(data, width=4 * words)
    with pytest.raises(gx.ElementRangeError, match="element 1 "):
        field.encode([0, -1])


def test_words_that_are_no_elements_are_refused() -> None:
    zeros = np.zeros((3, 4), np.uint64)
    with pytest.raises(gx.ArgumentTypeError, match="'canonical' or 'montgomery', not 'mont'"):
        FR.from_words(zeros, "mont")  # type: ignore[arg-type]
    for field in (GOLDILOCKS, MERSENNE31):
        words = field.encode([1]).numpy()
        with pytest.raises(gx.ArgumentTypeError, match=f"{field.name} has no Montgomery form"):
            field.from_words(words, "montgomery")
    with pytest.raises(gx.ArgumentTypeError, match="elements are uint64, not uint32"):
        FR.from_words(zeros.view(np.uint32), "canonical")
    with pytest.raises(gx.ArgumentShapeError, match="an element is 4 columns"):
        FR.from_words(zeros.reshape(4, 3), "canonical")
    with pytest.raises(gx.ArgumentTypeError, match="of type float, not an integer"):
        FR.encode([1, 2.5])
    with pytest.raises(gx.ArgumentTypeError, match="integers are wanted, not float64"):
        FR.encode(np.zeros(3))
    with pytest.raises(gx.ArgumentShapeError, match="33 bytes are no whole number"):
        FR.from_bytes(bytes(33))
    with pytest.raises(gx.ArgumentTypeError, match="'big' or 'little', not 'middle'"):
        FR.to_bytes(FR.encode([1]), byteorder="middle")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("modulus", "reason"),
    [
        (2**255 - 20, "is even"),
        (2, "less than 3"),
        (1, "less than 3"),
        (-7, "less than 3"),
        (9, "is not prime"),
        (561, "is not prime"),  # a Carmichael number
        (3_215_031_751, "is not prime"),  # a strong pseudoprime to the bases 2, 3, 5 and 7
        (P * BABYBEAR.modulus, "is not prime"),
        (2**769 - 1, "769 bits, and 768 are the most"),
    ],
)
def test_moduli_that_are_no_odd_primes_of_a_size_that_fits_are_refused(
    modulus: int, reason: str
) -> None:
    with pytest.raises(gx.KernelError, match=reason):
        Field(modulus)


def test_indices_that_an_array_does_not_have_are_refused(gpu: gx.PersistentVulkanBackend) -> None:
    host = FR.encode([[1, 2], [3, 4]])
    with pytest.raises(IndexError, match="3 indices for an array of shape"):
        host[0, 0, 0]
    there = gpu.to_device(host)
    with pytest.raises(IndexError):
        there[2]
    with pytest.raises(gx.ArgumentShapeError, match="in runs"):
        there[::2]
    with pytest.raises(gx.ArgumentShapeError, match="reshaped"):
        there.reshape(3)
