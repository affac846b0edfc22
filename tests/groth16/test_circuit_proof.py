"""examples/circuit_proof.py, on the device whose pipelines the tests of Groth16 share."""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

import gpu_executor as gx
from tests.support.examples import FOLDER

SVG = "{http://www.w3.org/2000/svg}"
BN254_ORDER = 21888242871839275222246405745257275088548364400416034343698204186575808495617


@pytest.mark.slow
@pytest.mark.usefixtures("shared_tables")
def test_the_proofs_of_the_circuits_are_valid(
    gpu: gx.PersistentVulkanBackend,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "proof.svg"
    monkeypatch.setattr(sys, "argv", ["circuit_proof.py", "-o", str(output), "--constraints", "20"])
    monkeypatch.setattr(gx, "GpuExecutor", lambda _backend: contextlib.nullcontext(gpu))
    runpy.run_path(str(FOLDER / "circuit_proof.py"), run_name="__main__")
    before = last = 7  # the chain of make_chain, with a seed of 1
    for number in range(20):
        before, last = last, (last + number + 1) * (before + 1) % BN254_ORDER
    shown = capsys.readouterr().out
    assert shown.count(f"the proofs are valid for the public value {last}\n") == 2
    titles = [each.text or "" for each in ElementTree.parse(output).iter(f"{SVG}title")]
    for stage in ("key", "witness check", "first proof", "4 proofs", "verification"):
        assert sum(f", {stage}: " in title for title in titles) == 2
