"""Batches cost few submissions and fetches: bytes go up once, and results come down once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ckzg
import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.vulkan.device_memory import DeviceMemory
from tests.support.kzg_setups import SetupPair, make_blob, prove_cells

BLOBS = np.frombuffer(make_blob([50, 1]) + make_blob([51]), np.uint8).reshape(2, 131072)
HALF = np.tile(np.arange(0, 128, 2), (2, 1))
Count = Callable[..., tuple[int, int]]


@pytest.fixture
def count(
    gpu: gx.PersistentVulkanBackend, fixed_prover: None, monkeypatch: pytest.MonkeyPatch
) -> Count:
    """Counts the submissions and fetches of a call that has run before, or `at_first`."""
    fetched: list[int] = []
    fetch = DeviceMemory.fetch

    def fetch_and_count(memory: DeviceMemory, array: Any) -> Any:
        fetched.append(array.nbytes)
        return fetch(memory, array)

    monkeypatch.setattr(DeviceMemory, "fetch", fetch_and_count)

    def count(call: Callable[[], Any], *, at_first: bool = False) -> tuple[int, int]:
        if not at_first:
            call()
        fetched.clear()
        before = gpu.array_device.stream.submissions
        call()
        return gpu.array_device.stream.submissions - before, len(fetched)

    return count


def test_commitments(known: SetupPair, count: Count) -> None:
    submissions, fetches = count(
        lambda: kzg.blob_to_kzg_commitment_batch(BLOBS, known.own), at_first=True
    )
    assert submissions <= 12
    assert fetches == 1


def test_cells(known: SetupPair, count: Count) -> None:
    submissions, fetches = count(lambda: kzg.compute_cells_batch(BLOBS, known.own))
    assert submissions <= 8
    assert fetches == 1
    submissions, fetches = count(lambda: kzg.compute_cells_and_kzg_proofs_batch(BLOBS, known.own))
    assert submissions <= 10
    assert fetches == 2


def test_recovery(known: SetupPair, count: Count) -> None:
    cells = kzg.compute_cells_batch(BLOBS, known.own)[:, ::2]
    call = kzg.recover_cells_and_kzg_proofs_batch
    submissions, fetches = count(lambda: call(HALF, cells, known.own))
    assert submissions <= 34
    assert fetches == 2


def test_verification(known: SetupPair, count: Count) -> None:
    blob = BLOBS[0].tobytes()
    cells, proofs = ckzg.compute_cells(blob, known.ckzg), prove_cells(blob)
    commitments = [ckzg.blob_to_kzg_commitment(blob, known.ckzg)] * 128
    found: list[bool] = []

    def verify() -> None:
        indices = list(range(128))
        found.append(
            kzg.verify_cell_kzg_proof_batch(commitments, indices, cells, proofs, known.own)
        )

    submissions, fetches = count(verify)
    assert found == [True, True]
    assert submissions <= 30
    assert fetches <= 3
