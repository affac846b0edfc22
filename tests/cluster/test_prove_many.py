"""examples/prove_many.py on a cluster, one of whose workers is killed."""

from __future__ import annotations

import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from tests.support.examples import FOLDER
from tests.support.witness_folders import ZKEY, check_outputs, copy_witnesses


@pytest.mark.slow
def test_a_killed_worker_loses_no_proof(
    two_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(FOLDER / "prove_many.py"))
    paths = copy_witnesses(tmp_path, 18)
    marker = tmp_path / "killed"

    worker: Any = example["ProofWorker"]

    class DyingWorker(worker):  # type: ignore[misc]
        """The first one to prove anything writes one proof and is killed."""

        def prove(self, witnesses: list[Path]) -> Any:
            try:
                with marker.open("x") as file:
                    super().prove(witnesses[:1])
                    proof = witnesses[0].with_name(f"proof-{witnesses[0].stem}.json")
                    file.write(f"{proof}\n{proof.read_text()}")
                os._exit(1)
            except FileExistsError:
                return super().prove(witnesses)

    start = example["start_ray_workers"]
    start.__globals__["ProofWorker"] = DyingWorker
    faults = example["prove_all"](start, ZKEY, paths)
    assert faults == {}
    assert capsys.readouterr().out.count("a worker is lost") == 1
    for each in paths:
        check_outputs(each)
    written, text = marker.read_text().split("\n", 1)
    assert Path(written).read_text() == text, "the proof of the killed worker is not made again"
