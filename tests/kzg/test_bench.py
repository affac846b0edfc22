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
from gpu_executor.msm.plan import MsmPlan
from tests.support.kzg_setups import SetupPair, make_blob


def to_row(blob: bytes) -> bench.Bytes:
    return np.frombuffer(blob, np.uint8).reshape(1, -1)


@pytest.mark.slow
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


@pytest.mark.slow
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
