"""The Python blocks of a page in docs/ run in order, as one program, and their assertions hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import BLOCK, REPOSITORY, parse_blocks, run_blocks

ASSERTIONS = {
    "api/curves.md": 5,
    "api/errors.md": 1,
    "api/executor.md": 11,
    "api/fields.md": 9,
    "api/hashes.md": 3,
    "api/kernels.md": 6,
    "curves.md": 10,
    "executor.md": 5,
    "fields.md": 9,
    "first-steps.md": 6,
    "hashes.md": 14,
    "index.md": 2,
    "interoperability.md": 1,
    "kernels.md": 9,
    "own-kernel.md": 10,
    "telemetry.md": 1,
    "troubleshooting.md": 5,
    "tuning.md": 4,
    "webgpu.md": 3,
}
"""The pages with Python blocks, and how many assertions they have at least."""
RUN_ELSEWHERE = {
    *("benchmarks.md", "cluster.md", "groth16.md", "kzg.md", "tour.md"),
    *("api/cluster.md", "api/groth16.md", "api/kzg.md"),
}
"""tests/bench/test_results.py runs the first on a file of results; tests/cluster/test_page.py,
tests/groth16/test_page.py and tests/kzg/test_page.py run theirs on the cluster, on a small circuit,
and on the trusted setup that the tests there share. The tour runs on the cluster too."""


def test_every_page_with_python_blocks_is_run() -> None:
    docs = REPOSITORY / "docs"
    with_code = {
        page.relative_to(docs).as_posix()
        for page in docs.rglob("*.md")
        if BLOCK.search(page.read_text())
    }
    assert with_code == ASSERTIONS.keys() | RUN_ELSEWHERE


@pytest.mark.slow
@pytest.mark.parametrize("name", ASSERTIONS)
def test_the_code_of_a_page_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = REPOSITORY / "docs" / name
    text = page.read_text()
    assert sum(block.count("assert ") for block in BLOCK.findall(text)) >= ASSERTIONS[name]
    run_blocks(page, parse_blocks(text), {})
