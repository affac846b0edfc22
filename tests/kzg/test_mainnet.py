"""Mainnet's setup, with its tables and the proofs of cells that a device computes."""

from __future__ import annotations

import random
import runpy
from collections.abc import Iterator
from typing import Any

import ckzg
import numpy as np
import pytest
import ray

import gpu_executor as gx
from gpu_executor import kzg
from gpu_executor.bench import kzg as bench
from gpu_executor.curves import BLS12_381_G1
from gpu_executor.kzg.cell_proofs import CellProver
from gpu_executor.kzg.inputs import split_items
from gpu_executor.kzg.setup import TABLE_BYTES_ON_CPU, plan_setup
from gpu_executor.kzg.setup_file import find_mainnet_setup
from tests.support.kzg_setups import (
    MODULUS,
    SetupPair,
    draw_blob,
    list_edge_blobs,
    make_blob,
    make_blob_of,
    write_broken_points,
)
from tests.support.pages import REPOSITORY

pytestmark = pytest.mark.slow
ZERO = BLS12_381_G1.infinity((1, 128))
EXAMPLES = REPOSITORY / "examples"
EXAMPLE = EXAMPLES / "blobs_on_devices.py"
HALF = sorted(random.Random(1).sample(range(128), 64))


def to_array(items: list[bytes]) -> Any:
    return np.frombuffer(b"".join(items), np.uint8).reshape(len(items), -1)


@pytest.fixture(scope="module")
def mainnet(gpu: gx.PersistentVulkanBackend) -> Iterator[SetupPair]:
    """Mainnet's setup, with the tables that it has by default on a software driver, where a file on
    disk has not those of commitments."""
    path = find_mainnet_setup()
    plan, _ = plan_setup(gpu.device, TABLE_BYTES_ON_CPU)
    write_broken_points(path, f"commitments-{plan.tables}x{plan.window_bits}")
    with kzg.load_trusted_setup(device=gpu, memory=TABLE_BYTES_ON_CPU) as own:
        yield SetupPair(own, ckzg.load_trusted_setup(str(path), 0))


# --- commitments and cells ---


def test_a_commitment_on_mainnets_setup_equals_that_of_ckzg(mainnet: SetupPair) -> None:
    """The quotient of the proof has no value that is 0, so all Lagrange points take part."""
    draw = random.Random(1)
    blob = make_blob([draw.randrange(MODULUS) for _ in range(60)])
    commitment = kzg.blob_to_kzg_commitment(blob, mainnet.own)
    assert commitment == ckzg.blob_to_kzg_commitment(blob, mainnet.ckzg)
    found = kzg.compute_blob_kzg_proof(blob, commitment, mainnet.own)
    assert found == ckzg.compute_blob_kzg_proof(blob, commitment, mainnet.ckzg)
    assert kzg.verify_blob_kzg_proof(blob, commitment, found, mainnet.own)


def test_cells_and_proofs_on_mainnets_setup_equal_those_of_ckzg(mainnet: SetupPair) -> None:
    """The second blob has most of its sums at infinity."""
    blobs = [draw_blob(20), list_edge_blobs()["constant"]]
    cells, proofs = kzg.compute_cells_and_kzg_proofs_batch(to_array(blobs), mainnet.own)
    assert (cells.shape, proofs.shape) == ((2, 128, 2048), (2, 128, 48))
    for row, blob in enumerate(blobs):
        expected = ckzg.compute_cells_and_kzg_proofs(blob, mainnet.ckzg)
        assert (split_items(cells[row]), split_items(proofs[row])) == expected


def test_recovery_on_mainnets_setup_equals_that_of_ckzg(mainnet: SetupPair) -> None:
    """With the proofs that a device computes; 64 random cells are missing."""
    cells, proofs = ckzg.compute_cells_and_kzg_proofs(make_blob_of([7] * 66), mainnet.ckzg)
    kept = [cells[index] for index in HALF]
    found = kzg.recover_cells_and_kzg_proofs(HALF, kept, mainnet.own)
    assert found == (cells, proofs)
    assert found == ckzg.recover_cells_and_kzg_proofs(HALF, kept, mainnet.ckzg)


# --- tables ---


def test_repr_shows_the_bytes_of_every_table(mainnet: SetupPair) -> None:
    memory = 2_359_296 if mainnet.own.gpu.device.kind == "cpu" else 1 << 30
    with kzg.load_trusted_setup(device=mainnet.own.gpu) as setup:
        assert repr(setup).endswith(f": no tables yet; at most {memory:,} bytes>")
    tables = mainnet.own.lagrange_table, mainnet.own.cell_prover
    text = repr(mainnet.own)
    assert mainnet.own.digest[:16] in text
    assert mainnet.own.gpu.device.name in text
    assert "commitments 786,432 bytes, cell proofs 1,572,864 bytes; at most 2,359,296 bytes" in text
    assert [each.nbytes for each in tables] == [786_432, 1_572_864]


def test_tables_are_kept_on_disk_and_a_broken_file_is_replaced(
    mainnet: SetupPair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`mainnet` made the tables of commitments while a broken file was there."""
    gpu, made = mainnet.own.gpu, (mainnet.own.lagrange_table, mainnet.own.cell_prover)
    caplog.clear()
    for function in ("make_multiples", "transform_points"):
        monkeypatch.setattr(f"gpu_executor.kzg.setup.{function}", None)
    with kzg.load_trusted_setup(device=gpu, memory=mainnet.own.memory) as setup:
        loaded = setup.lagrange_table, setup.cell_prover
        assert np.array_equal(loaded[0].data.numpy(), made[0].data.numpy())
        assert np.array_equal(loaded[1]._tables.numpy(), made[1]._tables.numpy())
    assert not caplog.records


# --- the benchmark and an example ---


@pytest.fixture
def given(mainnet: SetupPair, monkeypatch: pytest.MonkeyPatch) -> bench.Inputs:
    """A blob, and its proofs by ckzg."""
    blob = make_blob_of([0] * 64 + [3, 5])
    monkeypatch.setattr(bench, "draw_blobs", lambda _count: to_array([blob]))
    found = bench.Inputs(mainnet.own, 1)
    _, proofs = ckzg.compute_cells_and_kzg_proofs(bytes(found.blobs[0]), mainnet.ckzg)
    found.proofs = np.frombuffer(b"".join(proofs), np.uint8).reshape(1, 128, 48)
    return found


def test_stages_are_timed_and_their_proofs_checked(
    mainnet: SetupPair, given: bench.Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MIN_CALLS", 0)
    row = bench.measure_stages(mainnet.own, given)
    names = "bytes to cells", "columns", "fixed sets", "convolution", "affine", "proofs to bytes"
    assert tuple(row.stages_ms) == names
    assert all(0 < each < 600_000 for each in row.stages_ms.values())
    assert row.plans["fixed sets"].startswith("128 x 64 points in ")
    assert row.plans["convolution"].startswith("128 x 32 points in ")
    plan = mainnet.own.cell_prover.plan
    fixed = 128 * (64 * plan.windows * 10 + plan.table_windows * plan.buckets * 2 * 14)
    assert 1.3 * fixed < row.products < 2 * fixed  # with those of the convolution
    seconds = (row.stages_ms["fixed sets"] + row.stages_ms["convolution"]) / 1e3
    assert row.products_per_second == pytest.approx(row.products / seconds)
    monkeypatch.setattr(CellProver, "sum_fixed_sets", lambda _prover, scalars: scalars)
    monkeypatch.setattr(CellProver, "convolve", lambda _prover, scalars: scalars)
    monkeypatch.setattr(CellProver, "to_proofs", lambda prover, _: prover._gpu.to_device(ZERO))
    with pytest.raises(AssertionError, match="the stages of 1 blobs have other proofs than a call"):
        bench.measure_stages(mainnet.own, given)


def test_actors_of_a_cluster_share_the_blobs(
    mainnet: SetupPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two actors share three blobs; both find the points and tables of the setup on disk."""
    assert mainnet.own.lagrange_table.nbytes  # stores it
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setenv("GPU_VALIDATION", "0")
    monkeypatch.syspath_prepend(EXAMPLES)
    example = runpy.run_path(str(EXAMPLE), run_name="example")
    start = gx.cluster.start_actors
    monkeypatch.setattr(gx.cluster, "start_actors", lambda cls, backend: start(cls, backend, 2))
    blobs = [make_blob([5, seed]) for seed in (30, 31, 32)]
    try:
        workers = example["RayWorkers"]()
        parts = workers.call("commit", np.array_split(to_array(blobs), 2))
        found = [each.tobytes() for part in parts for each in part]
        workers.close()
        assert not ray.is_initialized()
    finally:
        ray.shutdown()
    assert found == [ckzg.blob_to_kzg_commitment(blob, mainnet.ckzg) for blob in blobs]
