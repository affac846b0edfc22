"""The Python blocks of docs/cluster.md and of its API page run on a cluster."""

from __future__ import annotations

import pytest

from tests.support.pages import REPOSITORY, parse_blocks, run_blocks


@pytest.mark.parametrize(("name", "assertions"), [("cluster.md", 1), ("api/cluster.md", 1)])
def test_the_code_of_the_page_runs(one_node: None, name: str, assertions: int) -> None:
    page = REPOSITORY / "docs" / name
    text = page.read_text()
    assert text.count("assert ") >= assertions
    run_blocks(page, parse_blocks(text), {})
