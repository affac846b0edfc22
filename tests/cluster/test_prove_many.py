"""examples/prove_many.py on a cluster, one of whose workers is killed. Each device has a worker."""

from __future__ import annotations

import os
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import gpu_executor as gx
from tests.support.circuits import find_data
from tests.support.examples import FOLDER
from tests.support.witness_folders import ZKEY, check_outputs, copy_witnesses

OUTPUTS = "proof", "public"


@pytest.mark.slow
def test_a_killed_worker_loses_no_proof(
    two_nodes: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = runpy.run_path(str(FOLDER / "prove_many.py"))
    paths = copy_witnesses(tmp_path, 6)
    dying, marker = tmp_path / "dying", tmp_path / "killed"
    made_before = [find_data("multiplier", "bn128", f".{each}.json") for each in OUTPUTS]

    worker: Any = example["ProofWorker"]

    class DyingWorker(worker):  # type: ignore[misc]
        """The first one is killed when it has written one proof, which snarkjs made: a key
        takes seconds to load."""

        def load(self, zkey: Path) -> Any:
            where = f"{ray.get_runtime_context().get_node_id()}: "
            try:
                dying.touch(exist_ok=False)
            except FileExistsError:
                return where + super().load(zkey)
            self.dies = True
            return where + self._gpu.device.name

        def prove(self, witnesses: list[Path]) -> Any:
            if not hasattr(self, "dies"):
                return super().prove(witnesses)
            outputs = example["name_outputs"](witnesses[0])
            for source, output in zip(made_before, outputs, strict=True):
                shutil.copyfile(source, output)
            marker.write_text(f"{outputs[0]}\n{outputs[0].read_text()}")
            os._exit(1)

    start = example["start_ray_workers"]
    start.__globals__.update(ProofWorker=DyingWorker, SHARE=2)
    faults = example["prove_all"](start, ZKEY, paths)
    assert faults == {}
    said = capsys.readouterr().out
    name = gx.devices()[0].name
    (listed,) = re.findall(r"2 device\(s\): (.*)\n", said)
    assert all(f"{each['NodeID']}: {name}" in listed for each in ray.nodes() if each["Alive"])
    assert said.count("a worker is lost") == 1
    for each in paths:
        check_outputs(each)
    written, text = marker.read_text().split("\n", 1)
    assert Path(written).read_text() == text, "the proof of the killed worker is not made again"
