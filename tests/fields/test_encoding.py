"""Conversions between integers, bytes, words and elements, on the host and on a device."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ElementRangeError,
    NotSupportedError,
)
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FQ,
    BLS12_381_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
)
from gpu_executor.primes.encoding import ByteOrder
from tests.support.fields_under_test import (
    CPU,
    FIVE,
    FULL96,
    NAMED,
    ONE_OF_EACH,
    Place,
    draw_elements,
    in_both_places,
    list_edge_values,
    make_array,
    on_conforming_fields,
    to_ints,
    to_words,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend
on_fewer_fields = pytest.mark.parametrize(
    "field", [BLS12_381_FQ, *ONE_OF_EACH, FULL96, FIVE], ids=lambda field: field.name
)
"""Of 12 words, 8, 3, 2 and 1, and of fewer bytes."""


@in_both_places
@on_conforming_fields
def test_integers_survive_conversion_to_elements_and_back(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 50, 1)]
    array = make_array(gpu, place, field, values)
    assert array.ints().dtype == object
    assert to_ints(array) == values
    assert to_ints(array.to_host()) == values
    reduced = field.encode([-1, field.modulus, 2**900 + 1], reduce=True)
    assert to_ints(reduced) == [field.modulus - 1, 0, (2**900 + 1) % field.modulus]


@in_both_places
@pytest.mark.parametrize("byteorder", ["big", "little"])
@on_fewer_fields
def test_bytes_survive_conversion_to_elements_and_back(
    gpu: Gpu, field: Field, byteorder: Any, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 50, 1)]
    usual = -(-field.modulus.bit_length() // 8)
    for width, asked in ((usual, None), (usual + 5, usual + 5)):
        data = b"".join(value.to_bytes(width, byteorder) for value in values)
        array = field.from_bytes(data, byteorder=byteorder, width=asked)
        if place == "device":
            array = gpu.to_device(array)
        assert to_ints(array) == values
        found = field.to_bytes(array, byteorder=byteorder, width=asked)
        assert (found.shape, found.tobytes()) == ((len(values), width), data)
        again = field.from_bytes(found.reshape(1, -1, width), byteorder=byteorder, width=asked)
        assert (again.shape, to_ints(again)) == ((1, len(values)), [values])


@pytest.mark.parametrize("byteorder", ["big", "little"])
@on_fewer_fields
def test_a_device_converts_bytes_to_elements_and_back(
    gpu: Gpu, field: Field, byteorder: Any
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 50, 1)]
    width = -(-field.modulus.bit_length() // 8)
    for size in (width, width + 5):
        data = b"".join(value.to_bytes(size, byteorder) for value in values)
        rows = np.frombuffer(b"\0" + data, np.uint8)[1:].reshape(-1, size)  # at an odd address
        for given in (data, rows, np.asfortranarray(rows)):
            array = field.from_bytes(given, byteorder=byteorder, width=size, device=gpu)
            assert (array.on_device, array.form) == (True, field.form)
            assert to_ints(array) == values
        for view in (array, array.in_form("canonical"), array[::-2], array[3:]):
            found = field.to_bytes(view, byteorder=byteorder, width=size)
            expected = [value.to_bytes(size, byteorder) for value in to_ints(view)]
            assert found.shape == (len(expected), size)
            assert found.tobytes() == b"".join(expected)
    assert field.from_bytes(b"", device=gpu).shape == (0,)
    shaped = field.from_bytes(
        rows[:6].reshape(2, 1, 3, size), byteorder=byteorder, width=size, device=gpu
    )
    assert shaped.shape == (2, 1, 3)
    assert field.to_bytes(shaped).shape == (2, 1, 3, width)
    assert field.to_bytes(shaped[:0]).shape == (0, 1, 3, width)


@pytest.mark.parametrize("byteorder", ["big", "little"])
@on_fewer_fields
def test_a_device_refuses_bytes_of_numbers_that_are_not_below_the_modulus(
    gpu: Gpu, field: Field, byteorder: Any
) -> None:
    width = -(-field.modulus.bit_length() // 8)
    largest = (field.modulus - 1).to_bytes(width, byteorder)
    for bad in (field.modulus, field.modulus + 1, 256**width - 1):
        if bad >= 256**width:
            continue
        for at in (0, 1, 300):
            rows = [largest] * 301
            rows[at] = rows[300] = bad.to_bytes(width, byteorder)
            with pytest.raises(ElementRangeError) as raised:
                field.from_bytes(b"".join(rows), byteorder=byteorder, device=gpu)
            assert raised.value.index == at
    gpu.synchronize()  # the error was raised, and is no news
    good = field.from_bytes(largest * 3, byteorder=byteorder, device=gpu)
    assert to_ints(good + 1) == [0] * 3


def test_bytes_are_converted_while_a_graph_is_recorded(gpu: Gpu) -> None:
    x = gpu.to_device(FR.encode([1, 2]))
    with gpu.graph(x) as run:
        y = x + FR.from_bytes((7).to_bytes(32, "big") * 2, device=gpu)
        with pytest.raises(ElementRangeError):
            FR.from_bytes(b"\xff" * 32, device=gpu)
    run()
    assert to_ints(y) == [8, 9]


def test_what_is_no_device_for_bytes_is_refused(gpu: Gpu) -> None:
    with pytest.raises(ArgumentTypeError, match="device is an executor or a backend"):
        FR.from_bytes(bytes(32), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="byteorder is 'middle'"):
        FR.from_bytes(bytes(32), byteorder="middle", device=gpu)  # type: ignore[arg-type]
    with pytest.raises(ArgumentShapeError, match="33 bytes"):
        FR.from_bytes(bytes(33), device=gpu)
    with pytest.raises(ArgumentTypeError, match="uint8"):
        FR.from_bytes(np.zeros((1, 32), np.int8), device=gpu)
    with gx.CpuBackend() as cpu:
        assert to_ints(FR.from_bytes(bytes(31) + b"\7", device=cpu)) == [7]
    with gx.VulkanSpirvBackend() as one_shot, pytest.raises(NotSupportedError):
        FR.from_bytes(bytes(32), device=one_shot)


@in_both_places
@on_conforming_fields
def test_canonical_and_montgomery_words_are_the_same_elements(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = [*list_edge_values(field), *draw_elements(field, 20, 1)]
    plain = to_words(field, values)
    arrays = [field.from_words(plain, "canonical")]
    np.testing.assert_array_equal(field.encode(values).numpy(), plain)
    if field.form == "montgomery":
        r = 2 ** (32 * field.prime.words)
        by_r = to_words(field, [value * r % field.modulus for value in values])
        arrays.append(field.from_words(by_r, "montgomery"))
    assert [array.form for array in arrays] == ["canonical", "montgomery"][: len(arrays)]
    if place == "device":
        arrays = [gpu.to_device(array) for array in arrays]
        assert {array.form for array in arrays} == {field.form}
    for array, other in product(arrays, repeat=2):
        assert to_ints(array) == values
        assert (array == other).all()
        assert to_ints(array + other) == [2 * value % field.modulus for value in values]
        np.testing.assert_array_equal(array.in_form("canonical").numpy(), plain)
        if field.form == "montgomery":
            np.testing.assert_array_equal(array.in_form("montgomery").words(), by_r)


def test_only_goldilocks_and_mersenne31_compute_in_canonical_form() -> None:
    canonical = {field.name for field in NAMED if field.form == "canonical"}
    assert canonical == {"goldilocks", "mersenne31"}
    assert {Field(field.modulus).form for field in (GOLDILOCKS, MERSENNE31)} == {"canonical"}


@pytest.mark.parametrize("field", [FR, GOLDILOCKS, BABYBEAR], ids=lambda field: field.name)
@pytest.mark.parametrize("byteorder", ["big", "little"])
def test_bytes_of_any_numbers_are_taken_modulo_p(
    gpu: Gpu, field: Field, byteorder: ByteOrder
) -> None:
    p = field.modulus
    for width in (field.prime.element_bytes, field.prime.element_bytes + 3):
        numbers = [0, p - 1, p, p + 5, 256**width - 1, 7 * p + 1]
        numbers = [each for each in numbers if each < 256**width]
        data = b"".join(each.to_bytes(width, byteorder) for each in numbers)
        rows = np.frombuffer(data, np.uint8).reshape(1, -1, width)
        for device in (None, CPU, gpu):
            found = field.from_bytes(
                rows, byteorder=byteorder, width=width, reduce=True, device=device
            )
            assert found.on_device == (device is not None)
            assert found.tolist() == [[each % p for each in numbers]]
            assert (found + 1).tolist() == [[(each + 1) % p for each in numbers]]


def test_a_field_is_called_to_encode() -> None:
    assert FR([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert FR(np.arange(3)).form == FR.encode([0, 1, 2]).form
    assert FR(7).shape == () and FR(-1, reduce=True).tolist() == FR.modulus - 1
    assert gx.fields.GOLDILOCKS2([(1, 2), 3]).tolist() == [(1, 2), (3, 0)]
    with pytest.raises(ElementRangeError, match="element 1"):
        FR([1, FR.modulus])
    for values in ([True], 1.5, FR([1])):
        with pytest.raises(ArgumentTypeError):
            FR(values)


@pytest.mark.parametrize("field", [MERSENNE31, FR, FULL96], ids=lambda field: field.name)
def test_words_on_a_device_are_checked_there(gpu: Gpu, field: Field) -> None:
    """In large arrays too, and in a graph, whose result is asked for later."""
    elements = field.random(3000, seed=1)
    canonical = np.array(elements.numpy())
    there = gpu.to_device(canonical)
    assert field.equal(field.from_words(there, "canonical").to_host(), elements).all()
    with gpu.graph() as graph:
        doubled = field.from_words(there, "canonical") * 2
    graph()
    assert field.equal(doubled.to_host(), elements * 2).all()
    one_too_large = (1 << 8 * field.prime.element_bytes) - 1
    large = np.frombuffer(
        one_too_large.to_bytes(field.prime.element_bytes, "little"), canonical.dtype
    )
    for index in (2999, 1234):
        canonical[index] = large if canonical.ndim > 1 else large[0]
        with pytest.raises(ElementRangeError, match=f"element {index} of"):
            field.from_words(gpu.to_device(canonical), "canonical")
    there[...] = gpu.to_device(canonical)
    graph()
    with pytest.raises(ElementRangeError, match="element 1234 of"):
        doubled.numpy()


@pytest.mark.parametrize("field", [FR, GOLDILOCKS, BABYBEAR, FULL96], ids=lambda field: field.name)
def test_a_seed_gives_the_same_random_elements_everywhere(gpu: Gpu, field: Field) -> None:
    host = field.random((3, 5), seed=7)
    for device in (gpu, CPU):
        found = field.random((3, 5), seed=7, device=device)
        assert found.on_device and found.form == field.form
        assert found.tolist() == host.tolist()
        assert field.random((0, 3), device=device).shape == (0, 3)
        assert field.random((), device=device).shape == ()


def test_random_elements_of_extensions_are_made_on_a_device(gpu: Gpu) -> None:
    field = gx.fields.BLS12_381_FQ2
    found = field.random(4, seed=7, device=gpu)
    assert found.on_device and found.tolist() == field.random(4, seed=7).tolist()


def test_random_elements_on_a_device_are_uniform(gpu: Gpu) -> None:
    """The mean of n numbers has a deviation of p / sqrt(12 n)."""
    n, p = 4096, FR.modulus
    values = FR.random(n, seed=1, device=gpu).tolist()
    assert len({*values}) == n
    assert abs(sum(values) / n / p - 0.5) < 6 / (12 * n) ** 0.5


def test_random_takes_a_device_and_no_name() -> None:
    with pytest.raises(ArgumentTypeError, match="device is an executor or a backend"):
        FR.random(4, device="gpu")  # type: ignore[arg-type]
