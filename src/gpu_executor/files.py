"""Files that are kept between processes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MOST_BRACKETS = 5_000


def parse_json(text: str) -> Any:
    """What JSON says; a `ValueError` where it is none, or nested without end.

    Python's reader calls itself for every bracket: it would end the process where some library has
    raised the recursion limit beyond what the stack takes.
    """
    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise ValueError("lists within lists")
    return json.loads(text)


def write_atomically(path: Path, content: bytes) -> None:
    """Whoever reads the file meanwhile sees all of the old or all of the new content."""
    import tempfile

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
