"""`gpu-executor bench kzg`: functions are timed, and its targets are for one device only."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import ckzg
import pytest

from gpu_executor.bench import kzg as bench
from gpu_executor.bench.kzg import KzgRow
from tests.support.kzg_setups import SetupPair


def test_functions_are_timed_beside_ckzg(
    known: SetupPair, known_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "BUDGET", 0.0)
    monkeypatch.setattr(bench, "MIN_CALLS", 1)
    monkeypatch.setattr(bench, "PRECOMPUTE", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    with bench.open_peer(known_path) as peer:
        assert peer is not None
        (rows,) = bench.measure_kzg(known.own, [2], peer, ("commitments", "cells"))
    assert [(row.function, row.blobs) for row in rows] == [("commitments", 2), ("cells", 2)]
    assert all(value > 0 for row in rows for value in dataclasses.astuple(row)[2:])


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


def test_every_function_has_arguments_of_ckzg(known: SetupPair) -> None:
    """The jobs of ckzg and the calls of this package compute the same."""
    given = bench.Inputs(known.own, 1)
    for function in ("commitments", "blob proofs", "cells"):
        name, arguments = bench._make_job(function, given, 0)
        theirs = getattr(ckzg, name)(*arguments, known.ckzg)
        ours = bench.FUNCTIONS[function](*bench.list_arguments(function, given), known.own)[0]
        joined = theirs if isinstance(theirs, bytes) else b"".join(theirs)
        assert bytes(ours.reshape(-1)) == joined
