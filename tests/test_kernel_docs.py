"""The examples of docs/kernels.md run as they are printed, and their assertions hold."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"


def test_the_examples_of_the_page_on_kernels_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 5
    assert sum(block.count("assert ") for block in blocks) >= 7
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
