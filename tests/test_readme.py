"""README.md is a program: its blocks run in order and print what the page says. docs/tour.md is one
too, which tests/cluster/test_page.py runs.

`# -> text` after a call of `print`, or on the next line, is what that call prints. `...` stands for
any text. Each `print` of the page has such a comment, so every value on the page is checked.
"""

from __future__ import annotations

import ast
import re
import traceback
from pathlib import Path

import pytest

import gpu_executor as gx
from tests.support.pages import (
    BLOCK,
    REPOSITORY,
    check_program,
    parse_program,
    run_blocks,
)

README, TOUR = REPOSITORY / "README.md", REPOSITORY / "docs" / "tour.md"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_readme_is_a_program_that_prints_what_it_says() -> None:
    check_program(README, least_blocks=1, least_values=2)


def test_the_readme_fits_one_screen_and_names_the_two_commands() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 100
    assert "    make demo " in text and "    make test " in text


def test_the_readme_promises_what_holds() -> None:
    text = README.read_text()
    assert "on GPUs that have Vulkan 1.2." in text.split("![")[0]
    assert "any vendor" not in text
    absent = text.partition("What is not there, or never ran:")[2].partition("## Install")[0]
    for word in ("Windows", "macOS", "AMD", "Intel", "constant time", "ckzg", "NumPy"):
        assert word in absent, word


def test_the_readme_names_peers_that_are_faster() -> None:
    """With the figures of the pages of docs/performance/."""
    pages = sorted((REPOSITORY / "docs" / "performance").glob("*.md"))
    performance = "".join(page.read_text() for page in pages)
    rows = [line for line in README.read_text().splitlines() if "| faster: " in line]
    assert len(rows) >= 3
    for row, figures in {
        "BN254 G1, 2^22 points": [
            "| BN254 G1, 2^22 | device | 16.7 | 27.7 | 1.66 | 14.2 |",
            "| BN254 G1, 2^22 | host | 18.6 | 32.6 | 1.75 | 28.7 |",
        ],
        "2^20 products": ["| products, 1 M | 1.53 ms | 6.06 ms |  | 1.42 ms | 1.17 ms |"],
        "2^14 sums": ["| sum, 16 K | 53.1 us | 4.22 us |"],
    }.items():
        assert any(row in line for line in rows), row
        assert all(figure in performance for figure in figures), row


def test_the_pages_open_nothing_but_executors() -> None:
    """A page that is about a backend opens this backend."""
    about = {
        "docs/webgpu.md": {"gx.WgpuExecutor"},
        "docs/api/executor.md": {"gx.open_backend"},
    }
    executors = {"gx.GpuExecutor", "gx.cluster.RayExecutor"}
    opened: dict[str, set[str]] = {}
    for page in (README, *(REPOSITORY / "docs").rglob("*.md")):
        code = "".join(BLOCK.findall(page.read_text()))
        found = re.findall(r"\b(?:\w+\.)*\w*(?:Executor|Backend|open_backend)\(", code)
        name = str(page.relative_to(REPOSITORY))
        opened[name] = {each.rstrip("(") for each in found} - about.get(name, set())
    assert sum(map(bool, opened.values())) > 8
    assert {name: found for name, found in opened.items() if not found <= executors} == {}


def test_on_webgpu_the_first_line_that_cannot_run_says_so() -> None:
    """It runs a kernel of GLSL: a kernel of the package comes before and works."""
    text = TOUR.read_text().replace("gx.GpuExecutor()", 'gx.GpuExecutor("webgpu")', 1)
    blocks = parse_program(text)
    opened = next(n for n, each in enumerate(blocks[0].body) if "webgpu" in ast.unparse(each))
    del blocks[0].body[opened + 1 :]  # fields, whose pipelines take seconds on WebGPU
    names: dict[str, object] = {}
    with pytest.raises(gx.errors.KernelError, match="'saxpy' has no WGSL") as error:
        run_blocks(TOUR, blocks, names)
    frames = traceback.extract_tb(error.value.__traceback__)
    failed = [frame.line or "" for frame in frames if frame.filename == str(TOUR)]
    assert len(failed) == 1
    assert "saxpy" in failed[0]
    gpu = names["gpu"]
    assert isinstance(gpu, gx.GpuExecutor)
    gpu.close()
