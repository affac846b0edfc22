"""`make test-quick` has tests of every package."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parent
MAKEFILE = (TESTS.parent / "Makefile").read_text()


def quick_files() -> list[Path]:
    """The files that the Makefile lists in QUICK."""
    found = re.search(r"^QUICK := ((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert found is not None
    return [TESTS.parent / word for word in found[1].split() if word != "\\"]


def test_every_listed_file_is_there() -> None:
    assert [path for path in quick_files() if not path.is_file()] == []


def test_every_package_has_a_file_in_the_list() -> None:
    packages = {path.parent for path in TESTS.glob("*/test_*.py")}
    assert packages
    assert packages <= {path.parent for path in quick_files()}
