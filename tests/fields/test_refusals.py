"""Invalid operands, elements and options are rejected alike on the host and on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import (
    BABYBEAR,
    BLS12_381_FR,
    BN254_FR,
    GOLDILOCKS,
    MERSENNE31,
    Field,
    FieldArray,
)
from gpu_executor.primes import Form
from tests.conftest import OpenGpu
from tests.support.fields_under_test import (
    Place,
    in_both_places,
    make_array,
    on_every_field,
    to_ints,
    to_words,
)

FR = BLS12_381_FR
Gpu = gx.PersistentVulkanBackend
Use = Callable[[FieldArray], object]


# --- arrays ---


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
def test_an_array_of_another_field_is_rejected(use: Use) -> None:
    with pytest.raises(gx.errors.ArgumentTypeError, match="was given to an operation of"):
        use(FR.encode([1, 2, 3, 4]))


def test_operands_in_different_places_are_rejected(fresh_gpu: OpenGpu) -> None:
    gpu, other = fresh_gpu(), fresh_gpu()
    host = BABYBEAR.encode([1, 2])
    here, there = gpu.to_device(host), other.to_device(host)
    for a, b in ((host, here), (here, host), (here, there)):
        for use in (BABYBEAR.add, BABYBEAR.sub, BABYBEAR.equal, BABYBEAR.dot):
            with pytest.raises(gx.errors.ArgumentTypeError, match="in different places"):
                use(a, b)
        with pytest.raises(gx.errors.ArgumentTypeError, match="to_device"):
            BABYBEAR.fma(a, a, b)
    with pytest.raises(gx.errors.ArgumentTypeError, match="on a device already"):
        other.to_device(here)
    with pytest.raises(gx.errors.ArgumentTypeError, match="the array is on the host"):
        _ = host.device


def test_an_array_of_a_closed_backend_is_rejected(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    x = gpu.to_device(BABYBEAR.encode([1, 2]))
    gpu.close()
    for use in (lambda: x + x, lambda: to_ints(x), lambda: BABYBEAR.ntt(x)):
        with pytest.raises(gx.errors.ClosedError):
            use()


def test_operations_require_a_field_array(gpu: Gpu) -> None:
    wanted = "expected a FieldArray, found int; encode"
    for use in (FR.inverse, FR.sum, FR.prefix_product, FR.ntt, FR.decode, FR.to_bytes):
        with pytest.raises(gx.errors.ArgumentTypeError, match=wanted):
            use(7)  # type: ignore[arg-type]
    with pytest.raises(gx.errors.ArgumentTypeError, match="at least one operand must be"):
        FR.add(3, 4)


@in_both_places
def test_shapes_that_cannot_be_broadcast_are_rejected(gpu: Gpu, place: Place) -> None:
    for one, other in (((4,), (3,)), ((2, 4), (2,)), ((2, 4), (3, 1)), ((2, 4), (4, 2))):
        x, y = (make_array(gpu, place, FR, np.zeros(shape, object)) for shape in (one, other))
        for use in (FR.add, FR.sub, FR.mul, FR.equal):
            with pytest.raises(gx.errors.ArgumentShapeError, match="cannot be broadcast together"):
                use(x, y)
        with pytest.raises(gx.errors.ArgumentShapeError, match="cannot be broadcast together"):
            FR.fma(x, x, y)


def test_invalid_indices_are_rejected(gpu: Gpu) -> None:
    host = FR.encode([[1, 2], [3, 4]])
    with pytest.raises(IndexError, match="3 indices for an array of shape"):
        host[0, 0, 0]
    there = gpu.to_device(host)
    with pytest.raises(IndexError):
        there[2]
    with pytest.raises(gx.errors.ArgumentShapeError, match="reshaped"):
        there.reshape(3)


@in_both_places
def test_arrays_without_axes_cannot_be_indexed(gpu: Gpu, place: Place) -> None:
    with pytest.raises((IndexError, gx.errors.ArgumentShapeError)):
        make_array(gpu, place, FR, 9)[0]


# --- elements and moduli ---


@in_both_places
@pytest.mark.parametrize("operand", [0.5, 2.0, True, np.True_, None, "7", [1, 2], np.arange(3)])
def test_operands_that_are_neither_arrays_nor_integers_are_rejected(
    gpu: Gpu, place: Place, operand: Any
) -> None:
    x = make_array(gpu, place, FR, [1, 2, 3])
    uses: list[Callable[[], object]] = [
        lambda: x + operand,
        lambda: operand - x,
        lambda: x * operand,
        lambda: FR.fma(x, operand, 1),
    ]
    for use in uses:
        with pytest.raises(gx.errors.ArgumentTypeError, match="a FieldArray or an integer, not "):
            use()


@on_every_field
def test_elements_not_below_the_modulus_are_rejected(field: Field) -> None:
    p, words, message = field.modulus, field.prime.words, "element 2 .* not below the modulus"
    for bad in (p, p + 1, 2 ** (32 * words) - 1):
        values = [0, p - 1, bad, 1]
        with pytest.raises(gx.ElementRangeError, match=message):
            field.encode(values)
        forms: set[Form] = {"canonical", field.form}
        for form in forms:
            with pytest.raises(gx.ElementRangeError, match=message):
                field.from_words(to_words(field, values), form)
        data = b"".join(value.to_bytes(4 * words, "big") for value in values)
        with pytest.raises(gx.ElementRangeError, match=message):
            field.from_bytes(data, width=4 * words)
    with pytest.raises(gx.ElementRangeError, match="element 1 "):
        field.encode([0, -1])


def test_words_of_the_wrong_form_dtype_or_shape_are_rejected() -> None:
    zeros = np.zeros((3, 4), np.uint64)
    with pytest.raises(
        gx.errors.ArgumentTypeError, match="'canonical' or 'montgomery', not 'mont'"
    ):
        FR.from_words(zeros, "mont")  # type: ignore[arg-type]
    for field in (GOLDILOCKS, MERSENNE31):
        words = field.encode([1]).numpy()
        with pytest.raises(
            gx.errors.ArgumentTypeError, match=f"{field.name} has no Montgomery form"
        ):
            field.from_words(words, "montgomery")
    with pytest.raises(gx.errors.ArgumentTypeError, match="elements of uint64, found uint32"):
        FR.from_words(zeros.view(np.uint32), "canonical")
    with pytest.raises(gx.errors.ArgumentShapeError, match="the 4 columns of an element"):
        FR.from_words(zeros.reshape(4, 3), "canonical")
    with pytest.raises(gx.errors.ArgumentTypeError, match="is of type float, not an integer"):
        FR.encode([1, 2.5])
    with pytest.raises(gx.errors.ArgumentTypeError, match="expected integers, found float64"):
        FR.encode(np.zeros(3))
    with pytest.raises(gx.errors.ArgumentShapeError, match="33 bytes are not a multiple"):
        FR.from_bytes(bytes(33))
    with pytest.raises(gx.errors.ArgumentTypeError, match="byteorder is 'middle'"):
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
        (FR.modulus * BABYBEAR.modulus, "is not prime"),
        (2**769 - 1, "769 bits; at most 768 are supported"),
    ],
)
def test_moduli_that_are_not_odd_primes_of_at_most_768_bits_are_rejected(
    modulus: int, reason: str
) -> None:
    with pytest.raises(gx.errors.KernelError, match=reason):
        Field(modulus)


# --- options ---


@in_both_places
def test_unknown_forms_are_rejected(gpu: Gpu, place: Place) -> None:
    with pytest.raises(
        gx.errors.ArgumentTypeError, match="'canonical' or 'montgomery', not 'bogus'"
    ):
        make_array(gpu, place, FR, [1]).in_form("bogus")  # type: ignore[arg-type]


@in_both_places
def test_unknown_orders_are_rejected(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [1, 2, 3, 4])
    for way in ({"order_in": "bit-reversed"}, {"order_out": "bit-reversed"}):
        with pytest.raises(gx.errors.ArgumentTypeError, match="'natural' or 'reversed'"):
            BABYBEAR.ntt(x, **way)  # type: ignore[arg-type]


@in_both_places
def test_unknown_policies_for_zero_are_rejected(gpu: Gpu, place: Place) -> None:
    with pytest.raises(gx.errors.ArgumentTypeError, match="'zero' or 'error', not 'raise'"):
        BABYBEAR.inverse(make_array(gpu, place, BABYBEAR, [1]), zero="raise")  # type: ignore[arg-type]


@in_both_places
def test_cosets_that_are_zero_modulo_the_prime_are_rejected(gpu: Gpu, place: Place) -> None:
    x = make_array(gpu, place, BABYBEAR, [1, 2, 3, 4])
    for change in (BABYBEAR.ntt, BABYBEAR.intt):
        for coset in (0, BABYBEAR.modulus, 0.5, True):
            with pytest.raises(gx.errors.ArgumentTypeError, match="coset must"):
                change(x, coset=coset)  # type: ignore[arg-type]


def test_wrong_types_raise_errors_of_the_package(gpu: Gpu) -> None:
    x, host = make_array(gpu, "device", BABYBEAR, [1, 2]), BABYBEAR.encode([1, 2])
    uses: list[Callable[[], object]] = [
        lambda: x**0.5,  # type: ignore[operator]
        lambda: x**x,  # type: ignore[operator]
        lambda: Field(7.0),  # type: ignore[arg-type]
        lambda: Field("7"),  # type: ignore[arg-type]
        lambda: BABYBEAR.from_words([1, 2], "canonical"),  # type: ignore[arg-type]
        lambda: BABYBEAR.from_words(x, "montgomery"),  # type: ignore[arg-type]
        lambda: host.reshape(3),
        lambda: make_array(gpu, "device", BABYBEAR, []).reshape(0, -1),
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
