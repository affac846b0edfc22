"""`gpu-executor bench kzg`: functions are timed, and its targets are for one device only."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import ckzg
import numpy as np
import pytest
from rich.console import Console

from gpu_executor.bench import kzg as bench
from gpu_executor.bench.kzg import KzgRow
from gpu_executor.cli import bench_kzg
from gpu_executor.curves import BLS12_381_G1
from gpu_executor.kzg.cell_proofs import CellProver
from gpu_executor.msm.plan import MsmPlan
from tests.support.kzg_setups import SetupPair, make_blob, make_blob_of

ZERO = BLS12_381_G1.infinity((1, 128))


def to_row(blob: bytes) -> bench.Bytes:
    return np.frombuffer(blob, np.uint8).reshape(1, -1)


def test_functions_are_timed_beside_ckzg(
    known: SetupPair, known_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "BUDGET", 0.0)
    monkeypatch.setattr(bench, "MIN_CALLS", 1)
    monkeypatch.setattr(bench, "PRECOMPUTE", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    monkeypatch.setattr(ckzg, "load_trusted_setup", lambda _path, _precompute: known.ckzg)
    with bench.open_peer(known_path) as peer:
        assert peer is not None
        times, again = bench.measure_kzg(known.own, [2, 2], peer, ("cells",))
    (row,) = times.rows
    assert row.ckzg_ms is again.rows[0].ckzg_ms  # one blob on one thread is measured once
    assert (row.function, row.blobs) == ("cells", 2)
    assert all(value > 0 for value in dataclasses.astuple(row)[2:])
    assert times.stages is None


@pytest.fixture
def given(mainnet: SetupPair, monkeypatch: pytest.MonkeyPatch) -> bench.Inputs:
    """A blob, and its proofs by ckzg."""
    blob = make_blob_of([0] * 64 + [3, 5])
    monkeypatch.setattr(bench, "draw_blobs", lambda _count: to_row(blob))
    found = bench.Inputs(mainnet.own, 1)
    _, proofs = ckzg.compute_cells_and_kzg_proofs(bytes(found.blobs[0]), mainnet.ckzg)
    found.proofs = np.frombuffer(b"".join(proofs), np.uint8).reshape(1, 128, 48)
    return found


@pytest.mark.parametrize("with_peer", [True, False], ids=["beside ckzg", "alone"])
def test_wrong_results_are_noticed_before_they_are_timed(
    known: SetupPair, monkeypatch: pytest.MonkeyPatch, with_peer: bool
) -> None:
    monkeypatch.setattr(ckzg, "load_trusted_setup", lambda _path, _precompute: known.ckzg)
    peer = bench.Peer(Path("not read"), all_cores=False) if with_peer else None
    given = bench.Inputs(known.own, 1)
    bench.check_result("cells", given.cells, given, peer)
    bench.check_result("verification of blobs", True, given, peer)
    wrong = given.cells.copy()
    wrong[0, 5, 7] ^= 1
    for function, found in (("cells", wrong), ("verification of blobs", False)):
        with pytest.raises(AssertionError, match=f"{function} of 1 blobs: wrong result"):
            bench.check_result(function, found, given, peer)


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


def test_products_are_counted_from_plans() -> None:
    """One blob with windows of 8 bits and all tables, as a GPU of many cores computes it."""
    fixed = MsmPlan(64, 128, 255, 8, 32, point_sets=128)
    convolution = MsmPlan(32, 128, 255, 8, 32, point_sets=4, msms_per_set=32)
    assert bench.count_products(fixed) == 262_144 * 10 + 128 * 128 * 2 * 14
    assert bench.count_products(convolution) == 131_072 * 10 + 128 * 128 * 2 * 14
    assert bench.count_doublings(convolution) == 4 * 32 * (31 * 8) * 9


def test_the_tables_fit_a_terminal_of_100_columns() -> None:
    stages = dict.fromkeys(("bytes to cells", "columns", "proofs to bytes"), 1_234.5)
    stages |= {"fixed sets": 40.25, "convolution": 12_345.67, "affine": 0.125}
    row = bench.StageRow(128, stages, {}, 5_300_000, 1.84e10)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(bench_kzg._make_stages_table([row], 2.24e10))
    line = console.export_text().splitlines()[-2]
    assert line.split() == [
        "128", "1,234.50", "1,234.50", "1,234.50", "40.25", "12,345.67", "0.12", "18,400", "22,400",
        "0.82",
    ]  # fmt: skip


def test_targets_are_upper_limits(known: SetupPair) -> None:
    device = known.own.gpu.device
    rows = [
        KzgRow("cells and proofs", blobs, 900.0, ms, 300.0, 2_000.0)
        for blobs, ms in ((1, 9.0), (6, 1.0), (72, 36.0))
    ]
    there = dataclasses.replace(device, name="NVIDIA H200")
    assert [each.met for each in bench.check_targets(rows, there)] == [True, False]
    elsewhere = dataclasses.replace(device, name="another GPU")
    assert bench.check_targets(rows, elsewhere) == []


def test_every_function_has_arguments_of_ckzg(
    known: SetupPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jobs of ckzg and the calls of this package compute the same."""
    monkeypatch.setattr(bench, "draw_blobs", lambda _count: to_row(make_blob([5, 70])))
    inputs = bench.Inputs(known.own, 1)
    for function in ("commitments", "blob proofs", "cells"):
        name, arguments = bench._make_job(function, inputs, 0)
        theirs = getattr(ckzg, name)(*arguments, known.ckzg)
        ours = bench.FUNCTIONS[function](*bench.list_arguments(function, inputs), known.own)[0]
        joined = theirs if isinstance(theirs, bytes) else b"".join(theirs)
        assert bytes(ours.reshape(-1)) == joined
