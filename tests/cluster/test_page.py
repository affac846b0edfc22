"""The Python block of docs/cluster.md runs on a cluster, and its assertion holds."""

from __future__ import annotations

from tests.support.pages import REPOSITORY, parse_blocks, run_blocks


def test_the_code_of_the_page_runs(one_node: None) -> None:
    page = REPOSITORY / "docs" / "cluster.md"
    text = page.read_text()
    assert "assert " in text
    run_blocks(page, parse_blocks(text), {})
