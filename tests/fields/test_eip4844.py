"""EIP-4844's blobs on the host and on the card, against c-kzg: its values of a blob's polynomial,
its roots and its bit-reversed order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ckzg
import numpy as np
import pytest
from py_arkworks_bls12381 import G1Point, G2Point

import gpu_executor as gx
from gpu_executor.fields import BABYBEAR, BLS12_381_FR, eip4844
from tests.support.fields_under_test import (
    Place,
    edges,
    in_both_places,
    in_reverse,
    ints,
    made,
    some,
)

Gpu = gx.PersistentVulkanBackend
FR = BLS12_381_FR
POINTS = [0, 1, FR.modulus - 1, *some(FR, 5, 2)]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """c-kzg's setup whose secret is 1: values and cells do not depend on the secret.

    All powers of 1 are 1; of the Lagrange polynomials the first is 1 there, and the others are 0.
    """
    one, zero, other = (
        point.to_compressed_bytes().hex() for point in (G1Point(), G1Point.identity(), G2Point())
    )
    lines = ["4096", "65", one, *[zero] * 4095, *[other] * 65, *[one] * 4096]
    path: Path = tmp_path_factory.mktemp("kzg") / "setup.txt"
    path.write_text("\n".join(lines))
    return ckzg.load_trusted_setup(str(path), 0)


@pytest.fixture(scope="module")
def values() -> list[int]:
    return [*edges(FR), *some(FR, 4096 - len(edges(FR)), 1)]


@pytest.fixture(scope="module")
def blob(values: list[int]) -> bytes:
    return b"".join(value.to_bytes(32, "big") for value in values)


def in_place(gpu: Gpu, place: Place, blob: bytes) -> gx.fields.FieldArray:
    array = eip4844.from_blob(blob)
    return gpu.to_device(array) if place == "card" else array


@in_both_places
def test_blobs_come_back_as_they_were(
    gpu: Gpu, place: Place, blob: bytes, values: list[int]
) -> None:
    array = in_place(gpu, place, blob)
    assert (array.field, ints(array)) == (FR, values)
    assert eip4844.to_blob(array).tobytes() == blob
    again = eip4844.values_of(eip4844.coefficients(array))
    assert eip4844.to_blob(again).tobytes() == blob


@pytest.fixture(scope="module")
def known_values(blob: bytes, setup: Any) -> list[tuple[int, int]]:
    """Points and the blob's values there by c-kzg, which takes a fifth of a second for each."""
    roots = ints(eip4844.domain())
    points = [*POINTS, roots[0], roots[1], roots[4095]]
    proofs = [ckzg.compute_kzg_proof(blob, z.to_bytes(32, "big"), setup) for z in points]
    return [(z, int.from_bytes(y, "big")) for z, (_, y) in zip(points, proofs, strict=True)]


@in_both_places
def test_values_at_any_points_are_those_of_c_kzg(
    gpu: Gpu, place: Place, blob: bytes, known_values: list[tuple[int, int]]
) -> None:
    at = made(gpu, place, FR, [z for z, _ in known_values])
    found = eip4844.evaluate(in_place(gpu, place, blob), at)
    assert ints(found) == [y for _, y in known_values]
    assert ints(found[-3:]) == [ints(eip4844.from_blob(blob))[i] for i in (0, 1, 4095)]


@in_both_places
def test_values_at_twice_as_many_roots_are_the_cells_of_c_kzg(
    gpu: Gpu, place: Place, blob: bytes, setup: Any
) -> None:
    """EIP-7594's cells: a polynomial at the 8192nd roots of unity, bit-reversed, whole."""
    coefficients = ints(eip4844.coefficients(in_place(gpu, place, blob)))
    longer = made(gpu, place, FR, [*coefficients, *[0] * 4096])
    found = FR.to_bytes(FR.ntt(longer, order_out="reversed"))
    assert found.tobytes() == b"".join(ckzg.compute_cells(blob, setup))


def test_the_domain_is_the_powers_of_the_root_from_7() -> None:
    root = pow(7, (FR.modulus - 1) // 4096, FR.modulus)
    powers = [pow(root, i, FR.modulus) for i in range(4096)]
    assert ints(eip4844.domain()) == in_reverse(powers)


@in_both_places
def test_several_blobs_are_a_batch(gpu: Gpu, place: Place, blob: bytes) -> None:
    other = bytes(eip4844.BLOB_BYTES - 1) + b"\5"
    both = np.frombuffer(blob + other, np.uint8).reshape(2, -1)
    array = eip4844.from_blob(both)
    assert array.shape == (2, 4096)
    there = eip4844.coefficients(gpu.to_device(array) if place == "card" else array)
    assert ints(there[1]) == ints(eip4844.coefficients(eip4844.from_blob(other)))
    assert eip4844.to_blob(eip4844.values_of(there)).tobytes() == blob + other


def test_elements_that_are_not_below_the_modulus_are_refused(blob: bytes, setup: Any) -> None:
    bad = bytearray(blob)
    bad[32 * 17 : 32 * 18] = FR.modulus.to_bytes(32, "big")
    with pytest.raises(RuntimeError):  # nor does c-kzg take it
        ckzg.compute_kzg_proof(bytes(bad), bytes(32), setup)
    with pytest.raises(gx.ElementRangeError, match=r"element 17 .* not below the modulus"):
        eip4844.from_blob(bad)


def test_what_is_no_blob_is_refused_in_words() -> None:
    for data in (b"", bytes(131071), bytes(131073), np.zeros((2, 4096), np.uint8)):
        with pytest.raises(gx.errors.ArgumentShapeError, match="a blob is 131072 bytes"):
            eip4844.from_blob(data)
    with pytest.raises(gx.errors.ArgumentTypeError, match="a blob is bytes, not a list"):
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
