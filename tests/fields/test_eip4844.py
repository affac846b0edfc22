"""Blobs of EIP-4844 on the host and on a device; tests/kzg/test_values.py compares with c-kzg."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, eip4844
from tests.support.fields_under_test import (
    Place,
    draw_elements,
    in_both_places,
    list_edge_values,
    reverse_bits,
    to_ints,
)

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR


@pytest.fixture(scope="module")
def values() -> list[int]:
    return [*list_edge_values(FR), *draw_elements(FR, 4096 - len(list_edge_values(FR)), 1)]


@pytest.fixture(scope="module")
def blob(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(32, "big") for value in values)


def make_blob_array(gpu: Gpu, place: Place, blob: bytes) -> gx.fields.FieldArray:
    array = eip4844.from_blob(blob)
    return gpu.to_device(array) if place == "device" else array


def test_a_device_reads_blobs(gpu: Gpu, blob: bytes, values: list[int]) -> None:
    rows = np.frombuffer(blob * 2, np.uint8).reshape(2, -1)
    found = eip4844.from_blob(rows, device=gpu)
    assert found.on_device
    assert to_ints(found) == [values] * 2
    assert (eip4844.to_blob(found) == rows).all()
    assert eip4844.from_blob(blob, device=gpu).shape == (4096,)


@in_both_places
def test_blobs_survive_conversion_to_values_and_coefficients_and_back(
    gpu: Gpu, place: Place, blob: bytes, values: list[int]
) -> None:
    array = make_blob_array(gpu, place, blob)
    assert (array.field, to_ints(array)) == (FR, values)
    assert eip4844.to_blob(array).tobytes() == blob
    again = eip4844.values_of(eip4844.coefficients(array))
    assert eip4844.to_blob(again).tobytes() == blob


def test_the_domain_is_the_powers_of_the_root_of_generator_7() -> None:
    root = pow(7, (FR.modulus - 1) // 4096, FR.modulus)
    powers = [pow(root, i, FR.modulus) for i in range(4096)]
    assert to_ints(eip4844.domain()) == reverse_bits(powers)


@in_both_places
def test_an_array_of_blobs_is_a_batch(gpu: Gpu, place: Place, blob: bytes) -> None:
    other = bytes(eip4844.BLOB_BYTES - 1) + b"\5"
    both = np.frombuffer(blob + other, np.uint8).reshape(2, -1)
    array = eip4844.from_blob(both)
    assert array.shape == (2, 4096)
    there = eip4844.coefficients(gpu.to_device(array) if place == "device" else array)
    assert to_ints(there[1]) == to_ints(eip4844.coefficients(eip4844.from_blob(other)))
    assert eip4844.to_blob(eip4844.values_of(there)).tobytes() == blob + other


def test_elements_not_below_the_modulus_are_rejected(blob: bytes) -> None:
    bad = bytearray(blob)
    bad[32 * 17 : 32 * 18] = FR.modulus.to_bytes(32, "big")
    with pytest.raises(gx.ElementRangeError, match=r"element 17 .* not below the modulus"):
        eip4844.from_blob(bad)


def test_arguments_that_are_not_blobs_are_rejected() -> None:
    for data in (b"", bytes(131071), bytes(131073), np.zeros((2, 4096), np.uint8)):
        with pytest.raises(gx.errors.ArgumentShapeError, match="a blob is 131072 bytes"):
            eip4844.from_blob(data)
    with pytest.raises(gx.errors.ArgumentTypeError, match="a blob is bytes, not list"):
        eip4844.from_blob([0] * 131072)  # type: ignore[arg-type]
    with pytest.raises(
        gx.errors.ArgumentTypeError, match="expected an array of uint8, found uint32"
    ):
        eip4844.from_blob(np.zeros(131072, np.uint32))
    for use in (eip4844.to_blob, eip4844.coefficients, eip4844.values_of):
        with pytest.raises(gx.errors.ArgumentShapeError, match="a blob is 4096 elements"):
            use(FR.encode([1, 2, 3, 4]))
        with pytest.raises(gx.errors.ArgumentTypeError, match="an array of babybear"):
            use(BABYBEAR.encode([0] * 4096))
        with pytest.raises(gx.errors.ArgumentTypeError, match="expected a FieldArray"):
            use(bytes(131072))  # type: ignore[arg-type]
    one, two = FR.encode([1]), FR.encode([[0] * 4096] * 2)
    with pytest.raises(gx.errors.ArgumentShapeError, match="expected one polynomial"):
        eip4844.evaluate(two, one)
