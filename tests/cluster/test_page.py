"""The Python blocks of docs/cluster.md, of its API page and of docs/tour.md run on a cluster, and
so does examples/on_ray.py. What the tour and the example print is as expected."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.support.examples import FOLDER
from tests.support.pages import REPOSITORY, check_program, parse_blocks, run_blocks


@pytest.mark.parametrize(("name", "assertions"), [("cluster.md", 1), ("api/cluster.md", 1)])
def test_the_code_of_the_page_runs(one_node: None, name: str, assertions: int) -> None:
    page = REPOSITORY / "docs" / name
    text = page.read_text()
    assert text.count("assert ") >= assertions
    run_blocks(page, parse_blocks(text), {})


@pytest.mark.slow
def test_the_tour_is_a_program_that_prints_what_the_page_says(
    one_node: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_program(REPOSITORY / "docs" / "tour.md", least_blocks=10, least_values=12)
    assert Path("trace.json").is_file()


@pytest.mark.slow
def test_the_example_prints_its_expected_output(
    one_node: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its two actors share the device of the node."""
    runpy.run_path(str(FOLDER / "on_ray.py"))
    shown = capsys.readouterr().out
    for pattern in (
        r"^<RayExecutor on (.+) on (.+), \1 on \2, open>\n",
        "the first sum begins with 1 3 5 7 9",
        "50 sums of a row and its opposite, all begin with 49",
        "twice 10048 is 20096",
    ):
        assert re.search(pattern, shown), shown
