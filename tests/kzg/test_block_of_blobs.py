"""examples/block_of_blobs.py and examples/blobs_on_devices.py, the latter on Ray too."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import ckzg
import pytest

import gpu_executor as gx
from gpu_executor import kzg
from tests.conftest import RunPython
from tests.support.kzg_setups import SetupPair
from tests.support.pages import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
EXAMPLE = EXAMPLES / "blobs_on_devices.py"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run_example(
    known: SetupPair,
    definition_prover: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., str]:
    """Runs a program in this process, on the setup with a known secret: it has the quicker proofs
    of cells. Returns what the program prints."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(kzg, "load_trusted_setup", lambda device: known.own)
    monkeypatch.setattr(ckzg, "load_trusted_setup", lambda _path, _precompute: known.ckzg)
    monkeypatch.setattr(kzg.TrustedSetup, "close", lambda _setup: None)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_commitments_and_proofs_are_those_of_ckzg(
    known: SetupPair, run_example: Callable[..., str], tmp_path: Path
) -> None:
    output = tmp_path / "new folder" / "blobs.svg"
    shown = run_example("block_of_blobs.py", "-o", str(output), "--blobs", "1", "--rounds", "1")
    assert "all cells are valid" in shown
    assert "ckzg has the same proofs" in shown
    (blob,) = runpy.run_path(str(EXAMPLES / "block_of_blobs.py"))["draw_blobs"](1)
    commitment = ckzg.blob_to_kzg_commitment(blob.tobytes(), known.ckzg)
    assert f"the first commitment is {commitment.hex()}" in shown
    titles = [each.text or "" for each in ElementTree.parse(output).iter(f"{SVG}title")]
    for stage in ("commitments", "proofs", "verification"):
        assert sum(f", {stage}: " in title for title in titles) == 2  # here and with ckzg


@pytest.mark.slow
def test_the_devices_of_this_machine_share_the_blobs(
    run_example: Callable[..., str], gpu: gx.PersistentVulkanBackend
) -> None:
    shown = run_example("blobs_on_devices.py", "1")
    assert f"1 device(s): {gpu.device.name}" in shown
    assert re.search(r"1 blobs, cells and proofs: [\d,.]+ ms", shown)
    assert "all cells are valid" in shown


def test_without_ray_the_example_says_what_to_install(run_python: RunPython) -> None:
    script = f"""
import runpy, sys
sys.modules["ray"] = None
sys.path.insert(0, {str(EXAMPLES)!r})
sys.argv = ["blobs_on_devices.py", "--ray"]
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""
    done = run_python(script)
    assert done.returncode == 1
    expected = "--ray needs Ray, which is not installed: pip install '.[ray]'"
    assert done.stderr.strip() == expected
