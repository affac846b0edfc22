"""Values of the polynomials of blobs, on the host and on a device, against ckzg."""

from __future__ import annotations

import ckzg
import pytest

import gpu_executor as gx
from gpu_executor.fields import BLS12_381_FR, FieldArray, eip4844
from tests.support.fields_under_test import (
    Place,
    draw_elements,
    in_both_places,
    list_edge_values,
    make_array,
    to_ints,
)
from tests.support.kzg_setups import SetupPair, make_blob

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR


@pytest.fixture(scope="module")
def values() -> list[int]:
    return [*list_edge_values(FR), *draw_elements(FR, 4096 - len(list_edge_values(FR)), 1)]


@pytest.fixture(scope="module")
def blob(values: list[int]) -> bytes:
    return make_blob(values)


def make_blob_array(gpu: Gpu, place: Place, blob: bytes) -> FieldArray:
    array = eip4844.from_blob(blob)
    return gpu.to_device(array) if place == "device" else array


@pytest.fixture(scope="module")
def known_values(known: SetupPair, blob: bytes) -> list[tuple[int, int]]:
    """Points, and the values of the blob there by ckzg, which takes 0.3 s per point. The last three
    points are roots of unity, of which the first two are 1 and -1."""
    roots = to_ints(eip4844.domain())
    assert roots[:2] == [1, FR.modulus - 1]
    points = [0, *draw_elements(FR, 5, 2)[-2:], roots[0], roots[1], roots[4095]]
    proofs = [ckzg.compute_kzg_proof(blob, z.to_bytes(32, "big"), known.ckzg) for z in points]
    return [(z, int.from_bytes(y, "big")) for z, (_, y) in zip(points, proofs, strict=True)]


@in_both_places
def test_values_at_any_points_equal_those_of_ckzg(
    gpu: Gpu, place: Place, blob: bytes, values: list[int], known_values: list[tuple[int, int]]
) -> None:
    at = make_array(gpu, place, FR, [z for z, _ in known_values])
    found = eip4844.evaluate(make_blob_array(gpu, place, blob), at)
    assert to_ints(found) == [y for _, y in known_values]
    assert to_ints(found[-3:]) == [values[i] for i in (0, 1, 4095)]


@in_both_places
def test_values_at_8192_roots_equal_the_cells_of_ckzg(
    gpu: Gpu, place: Place, blob: bytes, known: SetupPair
) -> None:
    """The cells of EIP-7594: the values at the 8192nd roots of unity, in bit-reversed order."""
    coefficients = to_ints(eip4844.coefficients(make_blob_array(gpu, place, blob)))
    longer = make_array(gpu, place, FR, [*coefficients, *[0] * 4096])
    found = FR.to_bytes(FR.ntt(longer, order_out="reversed"))
    assert found.tobytes() == b"".join(ckzg.compute_cells(blob, known.ckzg))
