"""Conversions between integers, bytes and words: exact for every shape; bad values are refused."""

from __future__ import annotations

import random
import re
from itertools import product
from typing import Any

import numpy as np
import pytest
from flint import fmpz, fmpz_mod_ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.primes import BLS12_381_FR, NAMED, Prime, words
from gpu_executor.primes.encoding import (
    ByteOrder,
    byte_width,
    bytes_to_words,
    ints_to_words,
    words_to_bytes,
    words_to_ints,
)

FR = BLS12_381_FR
PRIMES = [
    *NAMED.values(),
    Prime("three", 3),
    Prime("251", 251),
    Prime("33 bits", 2**32 + 15),
    Prime("2^61-1", 2**61 - 1),
    Prime("2^89-1", 2**89 - 1),
    Prime("2^521-1", 2**521 - 1),
    Prime("768 bits", 2**768 - 825),
]

on_every_prime = pytest.mark.parametrize("prime", PRIMES, ids=lambda prime: prime.name)
in_both_orders = pytest.mark.parametrize("order", ["big", "little"])


def edges(prime: Prime) -> list[int]:
    """0, 1, p - 1, and the values next to every byte boundary."""
    boundaries = [1 << bit for bit in range(0, prime.bits + 1, 8)]
    near = {boundary + off for boundary in boundaries for off in (-1, 0, 1)}
    return sorted(v for v in near | {0, 1, prime.modulus - 1} if 0 <= v < prime.modulus)


def random_ints(prime: Prime, count: int, seed: int = 1) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(prime.modulus) for _ in range(count)]


def bad_values(prime: Prime) -> list[int]:
    p, r = prime.modulus, prime.r
    return [p, p + 1, r - 1, r, -1, -p, r * r, -r]


def elements(prime: Prime) -> st.SearchStrategy[int]:
    return st.one_of(st.sampled_from(edges(prime)), st.integers(0, prime.modulus - 1))


def as_bytes(values: list[int], width: int, order: ByteOrder) -> bytes:
    return b"".join(value.to_bytes(width, order) for value in values)


# --- integers ---


@on_every_prime
@settings(deadline=None, max_examples=12)
@given(data=st.data())
def test_integers_to_words_and_back(prime: Prime, data: st.DataObject) -> None:
    values = data.draw(st.lists(elements(prime)))
    array = ints_to_words(prime, values)
    assert array.dtype == prime.column_dtype
    assert array.shape == (len(values), *prime.element_shape)
    assert array.tobytes() == as_bytes(values, prime.element_bytes, "little")
    assert words_to_ints(prime, array).tolist() == values


@on_every_prime
def test_every_edge_value_and_several_blocks_of_integers(prime: Prime) -> None:
    values = [*edges(prime), *random_ints(prime, 3000)]
    array = ints_to_words(prime, values)
    assert array.flags.writeable
    assert array.tobytes() == as_bytes(values, prime.element_bytes, "little")
    back = words_to_ints(prime, array).tolist()
    assert back == values
    assert all(type(value) is int for value in back)


@on_every_prime
def test_shapes_are_kept(prime: Prime) -> None:
    for shape in ((), (0,), (6,), (2, 3), (2, 0), (3, 1, 2)):
        flat = random_ints(prime, int(np.prod(shape)))
        objects = np.array(flat, object).reshape(shape)
        array = ints_to_words(prime, objects)
        assert array.shape == (*shape, *prime.element_shape)
        assert words.to_ints(prime, array) == flat
        assert np.array_equal(ints_to_words(prime, objects.tolist()), array)
        back = words_to_ints(prime, array)
        assert back.shape == shape
        assert back.tolist() == objects.tolist()


@on_every_prime
def test_words_with_any_strides_are_read(prime: Prime) -> None:
    flat = random_ints(prime, 120)
    array = ints_to_words(prime, flat).reshape(4, 6, 5, *prime.element_shape)[::2, ::-1, 1:]
    expected = np.array(flat, object).reshape(4, 6, 5)[::2, ::-1, 1:]
    assert words_to_ints(prime, array).tolist() == expected.tolist()
    assert words_to_ints(prime, np.asfortranarray(array)).tolist() == expected.tolist()
    big = words_to_bytes(prime, array).tobytes()
    assert big == as_bytes(expected.ravel().tolist(), byte_width(prime), "big")


@pytest.mark.parametrize(
    "ints",
    [
        [1, 2, 300],
        (1, 2, 300),
        iter([1, 2, 300]),
        (value for value in (1, 2, 300)),
        {1: "a", 2: "b", 300: "c"},
        np.array([1, 2, 300]),
        np.array([1, 2, 300], np.uint16),
        np.array([1, 2, 300], object),
        np.array([1, 0, 2, 0, 300, 0])[::2],
        [np.int64(1), 2, np.uint16(300)],
        [fmpz(1), fmpz(2), 300],
    ],
)
def test_every_container_of_integers_is_accepted(ints: Any) -> None:
    assert words_to_ints(FR, ints_to_words(FR, ints)).tolist() == [1, 2, 300]


@pytest.mark.parametrize("ints", [[True, 2], [2, True], iter([2, False]), True, [[2], [True]]])
def test_booleans_are_not_taken_for_integers(ints: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="is of type bool, not an integer"):
        ints_to_words(FR, ints, reduce=True)


@pytest.mark.parametrize("scalar", [5, np.int64(5), np.array(5), fmpz(5), np.array(5, object)])
def test_one_integer_is_one_element(scalar: Any) -> None:
    array = ints_to_words(FR, scalar)
    assert array.shape == FR.element_shape
    assert words_to_ints(FR, array).item() == 5


def test_numpys_largest_integers_are_converted_exactly() -> None:
    extremes = np.array([0, 2**63, 2**64 - 1], np.uint64)
    assert words_to_ints(FR, ints_to_words(FR, extremes)).tolist() == [0, 2**63, 2**64 - 1]
    signed = np.array([-(2**63), -1, 2**63 - 1])
    reduced = words_to_ints(FR, ints_to_words(FR, signed, reduce=True)).tolist()
    assert reduced == [value % FR.modulus for value in (-(2**63), -1, 2**63 - 1)]


@on_every_prime
def test_integers_out_of_range_are_refused_with_the_first_index(prime: Prime) -> None:
    for at, bad in product((0, 5, 9), bad_values(prime)):
        values = random_ints(prime, 10)
        values[at] = bad
        values[9] = -1
        with pytest.raises(
            ElementRangeError, match=rf"{re.escape(prime.name)} .*element {at} "
        ) as raised:
            ints_to_words(prime, values)
        assert raised.value.index == at


def test_the_first_index_is_reported_when_later_values_do_not_fit_the_words() -> None:
    with pytest.raises(ElementRangeError) as raised:
        ints_to_words(FR, [0, FR.modulus, -1, FR.r])
    assert raised.value.index == 1


@on_every_prime
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_reduce_accepts_any_integer(prime: Prime, data: st.DataObject) -> None:
    near = st.sampled_from(bad_values(prime))
    values = data.draw(st.lists(st.one_of(near, elements(prime), st.integers())))
    array = ints_to_words(prime, values, reduce=True)
    assert words_to_ints(prime, array).tolist() == [value % prime.modulus for value in values]


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize(
    ("ints", "match"),
    [
        ([1, 2.0], "element 1 is of type float"),
        ([1, "2"], "element 1 is of type str"),
        ([1, None], "element 1 is of type NoneType"),
        ([-1, 1.5], "element 1 is of type float"),
        ([1, [2]], "element 1 is of type list"),
        ([[1, 2], [3]], "element 0 is of type list"),
        ([1, np.array([1, 2])], "element 1 is of type ndarray"),
        (1.5, "element 0 is of type float"),
        (np.array([1.5]), "float64"),
        (np.array([True]), "bool"),
        (b"\x01\x02", "found bytes; from_bytes converts bytes"),
        (bytearray(4), "found bytearray; from_bytes converts bytes"),
        ("12", "found str"),
    ],
)
@pytest.mark.parametrize("prime", [FR, NAMED["goldilocks"]], ids=lambda prime: prime.name)
def test_values_that_are_not_integers_are_refused(
    prime: Prime, ints: Any, match: str, reduce: bool
) -> None:
    with pytest.raises(ArgumentTypeError, match=match):
        ints_to_words(prime, ints, reduce=reduce)


def test_arrays_that_differ_in_shape_are_refused() -> None:
    with pytest.raises(ArgumentShapeError, match="differ in shape"):
        ints_to_words(FR, [np.zeros((2, 2), int), np.zeros((2, 3), int)])


def test_words_of_a_wrong_dtype_or_shape_are_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="uint64"):
        words_to_ints(FR, np.zeros((3, 4), np.uint32))
    with pytest.raises(ArgumentShapeError, match="4 columns"):
        words_to_bytes(FR, np.zeros((3, 5), np.uint64))


# --- bytes ---


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("bls12_381_fr", 32),
        ("bls12_381_fq", 48),
        ("bls12_377_fr", 32),
        ("secp256k1_fq", 32),
        ("goldilocks", 8),
        ("babybear", 4),
    ],
)
def test_byte_widths_are_those_of_other_libraries(name: str, width: int) -> None:
    assert byte_width(NAMED[name]) == width


@in_both_orders
@on_every_prime
def test_bytes_to_words_and_back(prime: Prime, order: ByteOrder) -> None:
    for extra in (0, 1, 3, 8, 40):
        values = [*edges(prime), *random_ints(prime, 50)]
        width = byte_width(prime) + extra
        data = as_bytes(values, width, order)
        array = bytes_to_words(prime, data, byteorder=order, width=width)
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert array.shape == (len(values), *prime.element_shape)
        assert words.to_ints(prime, array) == values
        back = words_to_bytes(prime, array, byteorder=order, width=width)
        assert (back.dtype, back.shape) == (np.dtype(np.uint8), (len(values), width))
        assert back.tobytes() == data


@on_every_prime
def test_bytes_are_big_endian_and_of_minimal_width_by_default(prime: Prime) -> None:
    values = random_ints(prime, 20)
    data = as_bytes(values, byte_width(prime), "big")
    array = bytes_to_words(prime, data)
    assert words.to_ints(prime, array) == values
    assert words_to_bytes(prime, array).tobytes() == data


@on_every_prime
@settings(deadline=None, max_examples=8)
@given(data=st.data(), order=st.sampled_from(["big", "little"]), extra=st.integers(0, 9))
def test_random_elements_survive_conversion_to_bytes_and_back(
    prime: Prime, data: st.DataObject, order: ByteOrder, extra: int
) -> None:
    values = data.draw(st.lists(elements(prime), max_size=10))
    width = byte_width(prime) + extra
    array = ints_to_words(prime, values)
    string = as_bytes(values, width, order)
    assert words_to_bytes(prime, array, byteorder=order, width=width).tobytes() == string
    assert np.array_equal(bytes_to_words(prime, string, byteorder=order, width=width), array)


@in_both_orders
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_bytes_like_type_is_accepted_and_copied(kind: Any, order: ByteOrder) -> None:
    data = bytearray(as_bytes([1, 2], 32, order))
    array = bytes_to_words(FR, kind(data), byteorder=order)
    data[:] = bytes(64)
    assert words_to_ints(FR, array).tolist() == [1, 2]


@in_both_orders
@pytest.mark.parametrize("width", [32, 35])
def test_byte_arrays_with_any_strides_keep_their_shape(order: ByteOrder, width: int) -> None:
    values = random_ints(FR, 24)
    rows = np.frombuffer(as_bytes(values, width, order), np.uint8).reshape(4, 6, width)
    array = bytes_to_words(FR, rows[::2, ::-1], byteorder=order, width=width)
    assert array.shape == (2, 3 * 2, 4)
    expected = np.array(values, object).reshape(4, 6)[::2, ::-1]
    assert words_to_ints(FR, array).tolist() == expected.tolist()
    back = words_to_bytes(FR, array, byteorder=order, width=width)
    assert np.array_equal(back, rows[::2, ::-1])
    one = bytes_to_words(FR, rows[0, 0], byteorder=order, width=width)
    assert words_to_ints(FR, one).item() == values[0]


@in_both_orders
def test_conversions_never_share_memory_with_their_argument(order: ByteOrder) -> None:
    array = ints_to_words(FR, [1, 2])
    out = words_to_bytes(FR, array, byteorder=order)
    again = bytes_to_words(FR, out, byteorder=order)
    assert not np.shares_memory(out, array)
    assert not np.shares_memory(out, again)


@in_both_orders
@pytest.mark.parametrize("prime", [FR, NAMED["goldilocks"], PRIMES[-3]], ids=lambda p: p.name)
def test_widths_below_the_minimum_are_accepted_while_the_values_fit(
    prime: Prime, order: ByteOrder
) -> None:
    width = byte_width(prime) - 1
    values = [0, 1, 256**width - 1]
    data = as_bytes(values, width, order)
    array = bytes_to_words(prime, data, byteorder=order, width=width)
    assert words.to_ints(prime, array) == values
    assert words_to_bytes(prime, array, byteorder=order, width=width).tobytes() == data
    large = ints_to_words(prime, [*values, 256**width, 0])
    with pytest.raises(ArgumentShapeError, match=f"element 3 does not fit into {width} bytes"):
        words_to_bytes(prime, large, byteorder=order, width=width)


@in_both_orders
@on_every_prime
def test_bytes_out_of_range_are_refused_with_the_first_index(
    prime: Prime, order: ByteOrder
) -> None:
    for extra in (0, 5, 64):
        width = byte_width(prime) + extra
        largest = 256**width - 1
        for bad in (prime.modulus, largest, 256 ** (width - 1), 256 ** (width - 1) + 1):
            if not prime.modulus <= bad <= largest:
                continue
            values = random_ints(prime, 10)
            values[4], values[7] = bad, largest
            data = as_bytes(values, width, order)
            with pytest.raises(
                ElementRangeError, match=rf"{re.escape(prime.name)} .*element 4 "
            ) as raised:
                bytes_to_words(prime, data, byteorder=order, width=width)
            assert raised.value.index == 4


@pytest.mark.parametrize(
    ("data", "width", "match"),
    [
        (bytes(33), None, "33 bytes are not a multiple of the 32 bytes"),
        (bytes(32), 31, "32 bytes are not a multiple of the 31 bytes"),
        (np.zeros((3, 31), np.uint8), None, "the 32 bytes of an element, but the shape is"),
        (np.zeros((3, 32), np.uint8), 40, "the 40 bytes of an element, but the shape is"),
        (np.array(1, np.uint8), None, "the 32 bytes of an element"),
        (bytes(32), 0, "width is 0; it must be at least 1"),
        (bytes(32), -1, "width is -1; it must be at least 1"),
    ],
)
def test_byte_counts_that_do_not_match_the_width_are_refused(
    data: Any, width: int | None, match: str
) -> None:
    with pytest.raises(ArgumentShapeError, match=match):
        bytes_to_words(FR, data, width=width)


@pytest.mark.parametrize(
    ("data", "match"), [(np.zeros((3, 32), np.int8), "int8"), ([1, 2], "found list"), ("a", "str")]
)
def test_values_that_are_not_bytes_are_refused(data: Any, match: str) -> None:
    with pytest.raises(ArgumentTypeError, match=match):
        bytes_to_words(FR, data)


@pytest.mark.parametrize("width", [32, 40])
def test_unknown_byte_orders_are_refused(width: int) -> None:
    other: Any = "BIG"
    with pytest.raises(ArgumentTypeError, match="byteorder is 'BIG'; it must be 'big' or 'little'"):
        bytes_to_words(FR, bytes(width), byteorder=other, width=width)
    with pytest.raises(ArgumentTypeError, match="byteorder is 'BIG'; it must be 'big' or 'little'"):
        words_to_bytes(FR, ints_to_words(FR, [1]), byteorder=other, width=width)


def test_empty_bytes_are_zero_elements() -> None:
    array = bytes_to_words(FR, b"")
    assert array.shape == (0, 4)
    assert words_to_bytes(FR, array).shape == (0, 32)
    assert words_to_bytes(FR, array, width=40).shape == (0, 40)
    assert bytes_to_words(FR, b"", width=40).shape == (0, 4)
    assert words_to_ints(FR, array).tolist() == []


# --- forms ---


@pytest.mark.parametrize("name", ["bls12_381_fq", "bn254_fr", "koalabear"])
def test_products_in_the_stored_form_agree_with_flint(name: str) -> None:
    prime = NAMED[name]
    xs, ys = random_ints(prime, 100, 1), random_ints(prime, 100, 2)
    field = fmpz_mod_ctx(prime.modulus)
    a, b = (words.from_ints(prime, [prime.in_form(each) for each in ints]) for ints in (xs, ys))
    products = [int(field(x) * field(y)) for x, y in zip(xs, ys, strict=True)]
    found = words.to_ints(prime, words.mont_mul(prime, a, b))
    assert found == [prime.in_form(each) for each in products]
