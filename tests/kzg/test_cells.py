"""Cells and recovery against ckzg, byte for byte."""

from __future__ import annotations

import random
from typing import Any

import ckzg
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.errors import KzgDataError
from gpu_executor.fields import BLS12_381_FR, eip4844
from gpu_executor.kzg import cells as cells_module
from gpu_executor.kzg.inputs import split_items
from tests.support.kzg_setups import (
    SetupPair,
    draw_blob,
    list_edge_blobs,
    make_blob,
)


def to_array(items: list[bytes]) -> Any:
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), -1)


@pytest.mark.parametrize("name", list_edge_blobs())
def test_cells_of_edge_blobs_equal_those_of_ckzg(known: SetupPair, name: str) -> None:
    blob = list_edge_blobs()[name]
    assert kzg.compute_cells(blob, known.own) == ckzg.compute_cells(blob, known.ckzg)


@given(seeds=st.lists(st.integers(0, 3), max_size=6), most=st.integers(1, 4))
@settings(max_examples=8)
def test_batches_of_any_size_are_cut_and_equal_single_calls(
    known: SetupPair, seeds: list[int], most: int
) -> None:
    blobs = [make_blob([seed, 5, seed]) for seed in seeds]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells_module, "MAX_BLOBS", most)
        array = np.frombuffer(b"".join(blobs), np.uint8).reshape(len(blobs), 131072)
        found = kzg.compute_cells_batch(array, known.own)
    assert found.shape == (len(blobs), 128, 2048)
    expected = [ckzg.compute_cells(blob, known.ckzg) for blob in blobs]
    assert [[cell.tobytes() for cell in row] for row in found] == expected


def test_the_number_of_dispatches_does_not_depend_on_the_number_of_blobs(
    known: SetupPair, gpu: gx.PersistentVulkanBackend
) -> None:
    counts = []
    for blobs in (1, 2, 5):
        array = to_array([make_blob([7])] * blobs)
        kzg.compute_cells_batch(array, known.own)
        before = gpu.stats().dispatches
        kzg.compute_cells_batch(array, known.own)
        counts.append(gpu.stats().dispatches - before)
    assert counts == [counts[0]] * 3
    assert counts[0] <= 10


def test_views_of_arrays_are_read_in_their_order(known: SetupPair) -> None:
    blobs = to_array([make_blob([1]), make_blob([2])])
    expected = [ckzg.compute_cells(blob.tobytes(), known.ckzg) for blob in blobs]
    backwards = kzg.compute_cells_batch(blobs[::-1], known.own)
    assert [split_items(row) for row in backwards] == expected[::-1]
    fortran = kzg.compute_cells_batch(np.asfortranarray(blobs), known.own)
    assert [split_items(row) for row in fortran] == expected


# --- with proofs ---


@pytest.mark.usefixtures("definition_prover")
def test_cells_and_proofs_of_one_blob_are_lists_of_bytes(known: SetupPair) -> None:
    blob = list_edge_blobs()["largest"]
    found = kzg.compute_cells_and_kzg_proofs(blob, known.own)
    assert found == ckzg.compute_cells_and_kzg_proofs(blob, known.ckzg)


# --- recovery ---


@pytest.fixture(scope="module")
def blob() -> bytes:
    return draw_blob(21)


@pytest.fixture(scope="module")
def all_cells(known: SetupPair, blob: bytes) -> list[bytes]:
    found: list[bytes] = ckzg.compute_cells(blob, known.ckzg)
    return found


PATTERNS = {
    "first half": range(64),
    "last half": range(64, 128),
    "even": range(0, 128, 2),
    "all but one": [*range(99), *range(100, 128)],
    "all": range(128),
    **{f"random {seed}": sorted(random.Random(seed).sample(range(128), 64)) for seed in range(3)},
}


def interpolate(indices: Any, cells: list[bytes], setup: kzg.TrustedSetup) -> bytes:
    """The blob that recovery finds, without proofs."""
    rows = np.frombuffer(b"".join(cells), np.uint8).reshape(1, -1, 32)
    values = BLS12_381_FR.from_bytes(rows, device=setup.gpu)
    found = cells_module._interpolate(np.array([list(indices)]), values, setup)
    return eip4844.to_blob(eip4844.values_of(found)).tobytes()


@pytest.mark.parametrize("name", PATTERNS)
def test_the_polynomial_is_recovered_from_any_half(
    known: SetupPair, blob: bytes, all_cells: list[bytes], name: str
) -> None:
    indices = PATTERNS[name]
    assert interpolate(indices, [all_cells[i] for i in indices], known.own) == blob


@pytest.mark.usefixtures("definition_prover")
def test_blobs_of_a_batch_may_miss_different_cells(
    known: SetupPair, blob: bytes, all_cells: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells_module, "MAX_BLOBS", 2)
    expected = ckzg.compute_cells_and_kzg_proofs(blob, known.ckzg)
    indices = np.array([PATTERNS["random 0"], PATTERNS["even"], PATTERNS["random 0"]])
    given_cells = np.stack([to_array([all_cells[i] for i in row]) for row in indices])
    cells, proofs = kzg.recover_cells_and_kzg_proofs_batch(indices, given_cells, known.own)
    for row in range(3):
        assert (split_items(cells[row]), split_items(proofs[row])) == expected


@pytest.mark.usefixtures("fixed_prover")
def test_cells_that_no_blob_has_are_refused(known: SetupPair, all_cells: list[bytes]) -> None:
    """ckzg returns cells that contradict those it was given."""
    for count in (65, 128):
        cells = [*all_cells[: count - 1], bytes(2048)]
        with pytest.raises(KzgDataError, match=r"^cells are not cells of one blob"):
            kzg.recover_cells_and_kzg_proofs(list(range(count)), cells, known.own)
    rows = np.stack([to_array(all_cells), to_array([*all_cells[1:], all_cells[0]])])
    indices = np.stack([np.arange(128)] * 2)
    with pytest.raises(KzgDataError, match=r"^cells\[1\] are not cells of one blob"):
        kzg.recover_cells_and_kzg_proofs_batch(indices, rows, known.own)
    rows[1, 5, :32] = 0xFF
    with pytest.raises(KzgDataError, match=r"^element 320 of cells\[1\] is not below the modulus"):
        kzg.recover_cells_and_kzg_proofs_batch(indices, rows, known.own)
    known.own.gpu.synchronize()  # no error is left for a later call
