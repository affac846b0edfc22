"""The Python blocks of Markdown pages, and what a page says that they print."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
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


NEEDS_RAY = "# This block needs Ray"
EXPECTED = re.compile(r"# -> (.*)$")


def parse_program(text: str) -> list[ast.Module]:
    """The page's Python blocks. One that needs Ray is left out where Ray is not installed."""
    has_ray = importlib.util.find_spec("ray") is not None
    texts, blocks = BLOCK.findall(text), parse_blocks(text)
    return [
        block
        for block, source in zip(blocks, texts, strict=True)
        if has_ray or not source.startswith(NEEDS_RAY)
    ]


def find_expected_output(text: str, blocks: list[ast.Module]) -> dict[int, str]:
    """What each call of `print` must print, by the line on which the call begins."""
    lines = text.splitlines()
    nodes = [node for block in blocks for node in ast.walk(block) if isinstance(node, ast.Call)]
    expected = {}
    for node in nodes:
        if isinstance(node.func, ast.Name) and node.func.id == "print":
            last = node.end_lineno or node.lineno
            comment = EXPECTED.search(lines[last - 1]) or EXPECTED.search(lines[last])
            assert comment, f"line {node.lineno}: a print without `# ->`"
            expected[node.lineno] = comment[1]
    return expected


def check_program(page: Path, least_blocks: int, least_values: int) -> None:
    """Run a page and compare what it prints with what it says."""
    text = page.read_text()
    blocks = parse_program(text)
    expected = find_expected_output(text, blocks)
    assert len(blocks) >= least_blocks
    assert len(expected) >= least_values
    printed: dict[int, str] = {}
    run_blocks(page, blocks, {"print": make_print(printed)})
    assert printed.keys() == expected.keys()
    wrong = {n: printed[n] for n, value in expected.items() if not matches(value, printed[n])}
    assert wrong == {}


def make_print(printed: dict[int, str]) -> Callable[..., None]:
    """A `print` that stores its text under the line of the caller."""

    def print_to_store(*values: object) -> None:
        line = sys._getframe(1).f_lineno
        assert line not in printed, f"line {line}: a print that is called twice"
        printed[line] = " ".join(map(str, values))

    return print_to_store


def matches(expected: str, printed: str) -> bool:
    """Whether a text is the expected one, in which `...` stands for any text."""
    return re.fullmatch(".*".join(map(re.escape, expected.split("..."))), printed) is not None
