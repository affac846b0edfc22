"""JSON files of benchmarks, as tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_tables(file: Path, name: str) -> dict[str, Any]:
    """The tables of one benchmark, the only one in the file."""
    written = json.loads(file.read_text())
    (found,) = written["benchmarks"]
    assert found == name
    assert written["benchmarks"][name]["state"] == "measured"
    tables: dict[str, Any] = written["benchmarks"][name]["tables"]
    return tables
