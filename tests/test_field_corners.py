"""Fields at their corners: shapes, indices, forms and numbers that are easily got wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from conftest import OpenGpu
from fields_under_test import Place, in_both_places, ints, made, on_one_of_each, some
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, GOLDILOCKS, MERSENNE31, Field
from gpu_executor.vulkan.on_card import CardArrays

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend


# --- wrong results ---


def test_powers_by_more_bits_than_a_loop_has_turns(gpu: Gpu) -> None:
    x, e = made(gpu, "card", BABYBEAR, [3, 4, 0]), (1 << 70_000) | 12345
    assert ints(x**e) == [pow(v, e, BABYBEAR.modulus) for v in (3, 4, 0)]


def test_an_ellipsis_counts_axes_of_elements(gpu: Gpu) -> None:
    x = FR.encode([[1, 2, 3, 4], [5, 6, 7, 8]])
    assert ints(x[..., 0]) == [1, 5]
    assert ints(x[..., None, 0]) == [[1], [5]]


def test_single_elements_have_no_rows(gpu: Gpu) -> None:
    with pytest.raises((IndexError, gx.ArgumentShapeError)):
        made(gpu, "card", FR, 9)[0]


@in_both_places
def test_there_are_two_forms(gpu: Gpu, place: Place) -> None:
    with pytest.raises(gx.ArgumentTypeError):
        made(gpu, place, FR, [1]).in_form("bogus")  # type: ignore[arg-type]


def test_there_are_two_orders(gpu: Gpu) -> None:
    x = made(gpu, "card", BABYBEAR, [1, 2, 3, 4])
    for way in ({"order_in": "bit-reversed"}, {"order_out": "bit-reversed"}):
        with pytest.raises(gx.GpuError):
            BABYBEAR.ntt(x, **way)  # type: ignore[arg-type]


def test_zeros_are_inverted_in_two_ways(gpu: Gpu) -> None:
    with pytest.raises(gx.GpuError):
        BABYBEAR.inverse(made(gpu, "card", BABYBEAR, [1]), zero="raise")  # type: ignore[arg-type]


def test_a_coset_is_no_multiple_of_the_modulus(gpu: Gpu) -> None:
    x = made(gpu, "card", BABYBEAR, [1, 2, 3, 4])
    for change in (BABYBEAR.ntt, BABYBEAR.intt):
        for coset in (0, BABYBEAR.modulus, 0.5, True):
            with pytest.raises(gx.GpuError):
                change(x, coset=coset)  # type: ignore[arg-type]


# --- what raises and should not ---


@in_both_places
@on_one_of_each
def test_sums_of_all_elements_are_exact_in_both_places(
    gpu: Gpu, field: Field, place: Place
) -> None:
    values = some(field, 120, 1)
    x = made(gpu, place, field, values)
    assert (field.sum(x).shape, ints(field.sum(x))) == ((), sum(values) % field.modulus)
    assert ints(field.dot(x, x)) == sum(v * v for v in values) % field.modulus
    assert ints(x[:1].reshape()) == values[0]


@in_both_places
@on_one_of_each
def test_arrays_without_elements_take_integers_and_rows(
    gpu: Gpu, field: Field, place: Place
) -> None:
    x, row = (made(gpu, place, field, each) for each in (np.zeros((0, 3), object), [1, 2, 3]))
    for result in (x + 7, 7 + x, x * 7, 7 - x, x + row, row * x):
        assert result.shape == (0, 3)
    assert (x == 0).shape == (0, 3)


@in_both_places
@on_one_of_each
def test_the_first_operand_may_be_the_shorter_one(gpu: Gpu, field: Field, place: Place) -> None:
    p = field.modulus
    row, rows = np.array([1, 2, 3], object), np.array([[4, 5, 6], [7, 8, 9]], object)
    x, y = (made(gpu, place, field, each) for each in (row, rows))
    assert ints(field.sub(7, x)) == [6, 5, 4]
    assert ints(x - y) == ((row - rows) % p).tolist()
    assert ints(x[0] - x) == [0, p - 1, p - 2]
    assert ints(field.fma(3, x, x)) == [4, 8, 12]
    assert ints(field.fma(x, y, 1)) == (row * rows + 1).tolist()
    assert ints(x + x.reshape(1, 3)) == [[2, 4, 6]]
    assert (x + x[:1].reshape(1, 1)).shape == (1, 3)
    assert field.sub(7, x[0]).shape == ()
    assert ints(field.select([True, False, True], 1, x)) == [1, 2, 1]


@in_both_places
def test_a_single_element_is_selected(gpu: Gpu, place: Place) -> None:
    assert ints(FR.select(True, made(gpu, place, FR, 3), 4)) == 3


@pytest.mark.parametrize("field", [GOLDILOCKS, MERSENNE31], ids=lambda field: field.name)
@in_both_places
def test_fields_with_kernels_of_their_own_may_have_any_name(
    gpu: Gpu, field: Field, place: Place
) -> None:
    for own in (
        Field(field.modulus, name="own"),
        Field(field.modulus, factors=field.prime.odd_factors or ()),
    ):
        x = made(gpu, place, own, [1, 2])
        assert ints(x * 3) == [3, 6]


@in_both_places
@on_one_of_each
def test_arrays_are_unequal_element_by_element(gpu: Gpu, field: Field, place: Place) -> None:
    x = made(gpu, place, field, [1, 2, 1])
    assert (x != 1).tolist() == [False, True, False]


def test_exponents_and_moduli_may_be_of_numpy(gpu: Gpu) -> None:
    x = made(gpu, "card", FR, [2, 3])
    assert ints(x ** np.int64(3)) == [8, 27]  # type: ignore[operator]
    inverses = [pow(v, -1, FR.modulus) for v in (2, 3)]
    assert ints(x ** np.int64(-1)) == inverses  # type: ignore[operator]
    assert Field(np.int64(97)).modulus == 97  # type: ignore[arg-type]


def test_shapes_may_be_tuples(gpu: Gpu) -> None:
    for place in ("host", "card"):
        assert made(gpu, place, FR, [1, 2, 3, 4]).reshape((2, 2)).shape == (2, 2)


def test_arrays_on_the_card_take_indices_of_several_axes(gpu: Gpu) -> None:
    assert ints(made(gpu, "card", FR, [[1, 2], [3, 4]])[1, 0]) == 3


# --- errors that are not in words ---


def test_these_are_refused_in_words(gpu: Gpu) -> None:
    x, host = made(gpu, "card", BABYBEAR, [1, 2]), BABYBEAR.encode([1, 2])
    uses: list[Callable[[], object]] = [
        lambda: x**0.5,  # type: ignore[operator]
        lambda: x**x,  # type: ignore[operator]
        lambda: Field(7.0),  # type: ignore[arg-type]
        lambda: Field("7"),  # type: ignore[arg-type]
        lambda: BABYBEAR.from_words([1, 2], "canonical"),  # type: ignore[arg-type]
        lambda: BABYBEAR.from_words(x.data, "montgomery"),  # type: ignore[arg-type]
        lambda: host.reshape(3),
        lambda: made(gpu, "card", BABYBEAR, []).reshape(0, -1),
    ]
    said = []
    for use in uses:
        try:
            use()
            said.append("nothing")
        except gx.GpuError:
            said.append("words")
        except Exception as error:
            said.append(type(error).__name__)
    assert said == ["words"] * len(uses)


# --- what is kept, what waits, what fits ---


def test_integers_do_not_drive_out_tables(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    x = made(gpu, "card", BABYBEAR, [1] * 512)
    BABYBEAR.ntt(x)
    for number in range(64):
        x = x + number
    puts: list[Any] = []
    put = CardArrays.put

    def counted(self: CardArrays, array: Any) -> Any:
        puts.append(array)
        return put(self, array)

    monkeypatch.setattr(CardArrays, "put", counted)
    BABYBEAR.ntt(x)
    assert puts == []


def test_passes_fit_the_shared_memory_of_the_device(gpu: Gpu) -> None:
    """Of primes longer than 628 bits on 32 KiB; on 16 KiB, the least there is, from 299 on."""
    prime = next(p for k in range(1, 10_000, 2) if _is_prime(p := ((1 << 736) - k) * (1 << 32) + 1))
    field = Field(prime)
    x = made(gpu, "card", field, [1] * 256)
    assert ints(field.intt(field.ntt(x))) == [1] * 256  # and the validation layer is silent


def _is_prime(number: int) -> bool:
    from flint import fmpz

    return bool(fmpz(number).is_probable_prime())
