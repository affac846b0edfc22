"""The Python blocks of Markdown pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BLOCK = re.compile(r"```python\n(?!--8<--)(.*?)```", flags=re.DOTALL)
"""A block of code. A program that a page includes from examples/ is none: other tests run it."""


def parse_blocks(text: str) -> Iterator[ast.Module]:
    """The Python blocks of a page's text, with the line numbers of the page."""
    for match in BLOCK.finditer(text):
        yield ast.parse("\n" * text.count("\n", 0, match.start(1)) + match[1])


def run_blocks(page: Path, blocks: Iterable[ast.Module], names: dict[str, object]) -> None:
    """Run the blocks of a page in order, as one program."""
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
