"""The Python blocks of docs/groth16.md and of its API page run, and their assertions hold."""

from __future__ import annotations

import contextlib
import shutil
import sys
from pathlib import Path

import pytest

import gpu_executor as gx
from tests.support.circuits import find_data
from tests.support.pages import REPOSITORY, parse_blocks, run_blocks
from tests.support.snarkjs import Snarkjs

OPENERS = (
    "gpu_executor",
    *(f"gpu_executor.groth16.{name}" for name in ("constraint_check", "proving_key", "setup")),
)
"""The modules whose `GpuExecutor` is opened."""


@pytest.mark.parametrize(("name", "assertions"), [("groth16.md", 7), ("api/groth16.md", 1)])
@pytest.mark.usefixtures("shared_tables")
@pytest.mark.slow
def test_the_code_of_the_page_runs(
    name: str,
    assertions: int,
    gpu: gx.PersistentVulkanBackend,
    snarkjs: Snarkjs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "groth16.md":  # each executor compiles the pipelines again; the other page opens one
        shared = contextlib.nullcontext(gpu)
        for module in OPENERS:
            monkeypatch.setattr(sys.modules[module], "GpuExecutor", lambda **_: shared)
    for suffix in (".r1cs", ".zkey"):
        shutil.copyfile(find_data("multiplier", "bn128", suffix), f"multiplier{suffix}")
    Path("multiplier_js").mkdir()
    wasm = snarkjs.compile_named("multiplier").wasm
    shutil.copyfile(wasm, "multiplier_js/multiplier.wasm")
    page = REPOSITORY / "docs" / name
    text = page.read_text()
    assert text.count("assert ") >= assertions
    run_blocks(page, parse_blocks(text), {})
    assert capsys.readouterr().out.strip() in text, "what is printed is in the comment"
    if name == "groth16.md":
        proof = Path("proof.json").read_text()
        assert "groth16" in proof and Path("unsafe.zkey").exists()
