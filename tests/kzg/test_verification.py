"""Verification: what ckzg accepts is accepted, and every corruption is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ckzg
import numpy as np
import pytest

from gpu_executor import kzg
from gpu_executor.device_profiles import VendorProfile
from gpu_executor.errors import GpuError, KzgDataError
from gpu_executor.kzg import inputs, verification
from tests.support.kzg_setups import (
    GENERATOR,
    INFINITY,
    OUTSIDE,
    SetupPair,
    draw_blob,
    list_edge_blobs,
    prove_cells,
)

Change = Callable[[list[Any]], None]
own: Any = kzg
"""Called with arguments in lists, as ckzg is."""


@dataclass(frozen=True)
class Proven:
    """Blobs with their commitments and the proofs of ckzg."""

    blobs: list[bytes]
    commitments: list[bytes]
    proofs: list[bytes]


@pytest.fixture(scope="module")
def proven(known: SetupPair) -> Proven:
    blobs = [draw_blob(10), draw_blob(11), list_edge_blobs()["zero"]]
    commitments = [ckzg.blob_to_kzg_commitment(blob, known.ckzg) for blob in blobs]
    proofs = [
        ckzg.compute_blob_kzg_proof(blob, commitment, known.ckzg)
        for blob, commitment in zip(blobs, commitments, strict=True)
    ]
    return Proven(blobs, commitments, proofs)


# --- values ---


@pytest.fixture(scope="module")
def values(known: SetupPair, proven: Proven) -> list[list[bytes]]:
    """Commitments, z, y and proofs."""
    z = [each.to_bytes(32, "big") for each in (5, 1, 0)]
    found = [
        ckzg.compute_kzg_proof(blob, at, known.ckzg)
        for blob, at in zip(proven.blobs, z, strict=True)
    ]
    return [proven.commitments, z, [y for _, y in found], [proof for proof, _ in found]]


@pytest.mark.parametrize("wrong", [None, 0, 1, 2, 3])
def test_proofs_of_values_are_verified_one_by_one_and_together(
    known: SetupPair, values: list[list[bytes]], wrong: int | None
) -> None:
    """`wrong` is the argument that is exchanged in item 1."""
    items = [list(each) for each in values]
    if wrong is not None:
        items[wrong][1] = GENERATOR if wrong in (0, 3) else (9).to_bytes(32, "big")
    arrays = [np.frombuffer(b"".join(each), np.uint8).reshape(3, -1) for each in items]
    found = own.verify_kzg_proofs(*arrays, known.own)
    assert found.tolist() == [True, wrong is None, True]
    assert own.verify_kzg_proof_batch(*arrays, known.own) is (wrong is None)
    for row in range(3):
        arguments = [each[row] for each in items]
        expected = ckzg.verify_kzg_proof(*arguments, known.ckzg)
        assert own.verify_kzg_proof(*arguments, known.own) == expected == found[row]


# --- blobs ---


def change_blob(items: list[Any]) -> None:
    items[0][1] = items[0][1][:-1] + bytes([items[0][1][-1] ^ 1])


def exchange_blobs(items: list[Any]) -> None:
    items[0][0], items[0][1] = items[0][1], items[0][0]


def exchange_proofs(items: list[Any]) -> None:
    items[2][0], items[2][1] = items[2][1], items[2][0]


def change_commitment(items: list[Any]) -> None:
    items[1][2] = GENERATOR


def change_proof(items: list[Any]) -> None:
    items[2][0] = INFINITY


@pytest.mark.parametrize(
    "change",
    [None, change_blob, exchange_blobs, exchange_proofs, change_commitment, change_proof],
)
def test_proofs_of_blobs_are_verified_as_by_ckzg(
    known: SetupPair, proven: Proven, change: Change | None
) -> None:
    items = [list(each) for each in (proven.blobs, proven.commitments, proven.proofs)]
    if change is not None:
        change(items)
    joined = [b"".join(each) for each in items]
    assert ckzg.verify_blob_kzg_proof_batch(*joined, known.ckzg) == (change is None)
    assert own.verify_blob_kzg_proof_batch(*joined, known.own) == (change is None)
    arrays = [np.frombuffer(b"".join(each), np.uint8).reshape(3, -1) for each in items]
    assert own.verify_blob_kzg_proof_batch(*arrays, known.own) == (change is None)
    for row in range(3):
        arguments = [each[row] for each in items]
        expected = ckzg.verify_blob_kzg_proof(*arguments, known.ckzg)
        assert own.verify_blob_kzg_proof(*arguments, known.own) == expected


def test_no_blobs_are_verified(known: SetupPair) -> None:
    assert kzg.verify_blob_kzg_proof_batch(b"", b"", b"", known.own)
    empty = np.zeros((0, 48), np.uint8)
    assert kzg.verify_blob_kzg_proof_batch(np.zeros((0, 131072), np.uint8), empty, empty, known.own)


# --- cells ---

CHOSEN = [(0, 3), (0, 127), (1, 0), (1, 3), (1, 64), (0, 3)]
"""The blob and the index of each cell; one cell occurs twice."""


@pytest.fixture(scope="module")
def cells(known: SetupPair, proven: Proven) -> list[list[Any]]:
    """Commitments, indices, cells and proofs."""
    made = [(ckzg.compute_cells(blob, known.ckzg), prove_cells(blob)) for blob in proven.blobs[:2]]
    return [
        [proven.commitments[blob] for blob, _ in CHOSEN],
        [index for _, index in CHOSEN],
        [made[blob][0][index] for blob, index in CHOSEN],
        [made[blob][1][index] for blob, index in CHOSEN],
    ]


def change_index(items: list[Any]) -> None:
    items[1][4] = 65


def exchange_cells(items: list[Any]) -> None:
    items[2][1], items[2][2] = items[2][2], items[2][1]


def change_cell(items: list[Any]) -> None:
    items[2][3] = items[2][3][:-1] + bytes([items[2][3][-1] ^ 1])


def change_cell_commitment(items: list[Any]) -> None:
    items[0][0] = items[0][2]


def change_cell_proof(items: list[Any]) -> None:
    items[3][5] = GENERATOR


def change_two_cells(items: list[Any]) -> None:
    """Errors that cancel each other without weights: the first and the last item are equal."""
    items[0][0], items[0][5] = items[0][2], items[0][2]


CHANGES = [
    None,
    change_index,
    exchange_cells,
    change_cell,
    change_cell_commitment,
    change_cell_proof,
    change_two_cells,
]


@pytest.mark.parametrize(
    ("most", "change"),
    [
        *((1 << 14, change) for change in CHANGES),
        # In the first part, in the second, and in both.
        *((4, change) for change in (None, change_cell, change_cell_proof, change_two_cells)),
    ],
)
def test_proofs_of_cells_are_verified_as_by_ckzg(
    known: SetupPair, cells: list[list[Any]], change: Change | None, most: int
) -> None:
    items = [list(each) for each in cells]
    if change is not None:
        change(items)
    assert ckzg.verify_cell_kzg_proof_batch(*items, known.ckzg) == (change is None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verification, "MAX_CELLS", most)
        assert own.verify_cell_kzg_proof_batch(*items, known.own) == (change is None)


def test_invalid_cells_behind_wrong_proofs_raise(
    known: SetupPair, cells: list[list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    items = [list(each) for each in cells]
    change_cell(items)
    items[2][-1] = b"\xff" * 2048
    monkeypatch.setattr(verification, "MAX_CELLS", 4)
    with pytest.raises(KzgDataError, match=rf"element 0 of cells\[{len(items[2]) - 1}\]"):
        own.verify_cell_kzg_proof_batch(*items, known.own)


@pytest.mark.parametrize("collide", [False, True])
def test_equal_rows_are_found(monkeypatch: pytest.MonkeyPatch, collide: bool) -> None:
    if collide:  # all rows have one key
        monkeypatch.setattr("secrets.token_bytes", bytes)
    draw = np.random.default_rng(7)
    different = draw.integers(0, 256, (9, 48), np.uint8)
    which = draw.integers(0, 9, 50)
    first, place = inputs.find_distinct(different[which])
    assert first.tolist() == sorted({each: i for i, each in reversed([*enumerate(which)])}.values())
    assert (different[which][first][place] == different[which]).all()
    weights = verification._draw_weights(50) if not collide else np.full((50, 4), 2**64 - 1, "u8")
    numbers = [int.from_bytes(each.tobytes(), "little") for each in weights]
    expected = [sum(n for n, at in zip(numbers, place, strict=True) if at == k) for k in range(9)]
    assert verification._sum_weights(weights, place, 9) == expected


def test_arrays_of_cells_are_verified(known: SetupPair, cells: list[list[Any]]) -> None:
    commitments, indices, values, proofs = (
        np.array(each) if isinstance(each[0], int) else to_rows(each) for each in cells
    )
    verify = own.verify_cell_kzg_proof_batch
    assert verify(commitments, indices, values, proofs, known.own)
    assert verify(commitments[::-1], indices[::-1], values[::-1], proofs[::-1], known.own)
    assert not verify(commitments[::-1], indices, values, proofs, known.own)
    assert verify([], [], [], [], known.own)


def to_rows(items: list[bytes]) -> Any:
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), -1)


@pytest.mark.parametrize("place", [0, 3])
def test_the_device_decodes_points_and_names_the_first_bad_one(
    known: SetupPair, cells: list[list[Any]], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A software driver leaves decoding to arkworks; a GPU decodes and checks the points itself."""
    monkeypatch.setattr("gpu_executor.kzg.setup.HOST_DECODES", ())
    verify = own.verify_cell_kzg_proof_batch
    assert verify(*cells, known.own)
    name = "commitments" if place == 0 else "proofs"
    for bad in (OUTSIDE, bytes(48), b"\xe0" + bytes(47)):
        items = [list(each) for each in cells]
        items[place][2] = bad
        with pytest.raises(KzgDataError, match=rf"^{name}\[2\] is not a compressed point"):
            verify(*items, known.own)


def test_the_device_decodes_the_points_of_large_batches_of_blobs(
    known: SetupPair, proven: Proven, values: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """EIP-4844: what verifies, what does not, and what is no point, as with points of arkworks."""
    monkeypatch.setattr("gpu_executor.kzg.setup.HOST_DECODES", ())
    profile = VendorProfile(decoded_points=2)
    monkeypatch.setattr("gpu_executor.kzg.setup.get_profile", lambda _: profile)
    monkeypatch.setattr(verification, "OPENINGS_OF_THREAD", 0)
    monkeypatch.setattr(verification, "_verify_all", refuse_call)
    given = [to_rows(each) for each in (proven.blobs, proven.commitments, proven.proofs)]
    verify = own.verify_blob_kzg_proof_batch
    assert verify(*given, known.own)
    assert not verify(given[0], given[1], given[2][::-1], known.own)
    last = [each[1:] for each in given]
    assert (own.compute_blob_kzg_proof_batch(*last[:2], known.own) == last[2]).all()
    for place, name in ((1, "commitments"), (2, "proofs")):
        bad = [each.copy() for each in given]
        bad[place][1] = np.frombuffer(OUTSIDE, np.uint8)
        refused = rf"^{name}\[1\] is not a compressed point of .* not in the group of prime order$"
        with pytest.raises(KzgDataError, match=refused):
            verify(*bad, known.own)
    rows = [to_rows(each) for each in values]
    assert own.verify_kzg_proofs(*rows, known.own).tolist() == [True] * 3
    assert own.verify_kzg_proof_batch(*rows, known.own) is True


def test_single_wrong_proofs_are_found_after_a_check_on_the_device(
    known: SetupPair, values: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_executor.kzg.setup.HOST_DECODES", ())
    profile = VendorProfile(decoded_points=2)
    monkeypatch.setattr("gpu_executor.kzg.setup.get_profile", lambda _: profile)
    monkeypatch.setattr(verification, "OPENINGS_OF_THREAD", 0)
    rows = [to_rows(each) for each in values]
    rows[2] = rows[2].copy()
    rows[2][1, -1] ^= 1
    assert own.verify_kzg_proofs(*rows, known.own).tolist() == [True, False, True]
    assert own.verify_kzg_proof_batch(*rows, known.own) is False


def test_of_no_items_all_proofs_are_right(known: SetupPair) -> None:
    nothing = [np.zeros((0, width), np.uint8) for width in (48, 32, 32, 48)]
    assert own.verify_kzg_proof_batch(*nothing, known.own) is True
    assert own.verify_kzg_proofs(*nothing, known.own).shape == (0,)
    assert own.verify_blob_kzg_proof_batch(b"", b"", b"", known.own) is True
    assert own.verify_cell_kzg_proof_batch([], [], [], [], known.own) is True


def refuse_call(*_: object) -> None:
    raise AssertionError("the points are on the device")


def test_a_call_in_a_graph_is_refused_and_later_calls_verify(
    known: SetupPair, cells: list[list[Any]]
) -> None:
    verify = own.verify_cell_kzg_proof_batch
    with pytest.raises(GpuError, match="outside of the graph"), known.own.gpu.graph():
        verify(*cells, known.own)
    assert verify(*cells, known.own)
