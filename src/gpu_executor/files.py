"""Reading and writing files that other processes read and write too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

MAX_BRACKETS = 5_000


def parse_json(text: str) -> Any:
    """Parse JSON; raises `ValueError` for text that is not JSON or may be nested too deeply.

    Python's parser recurses for every bracket. A library may have raised the recursion limit beyond
    what the stack can hold, and then deep nesting would crash the process.
    """
    brackets = text.count("[") + text.count("{")
    if brackets > MAX_BRACKETS:
        raise ValueError(f"{brackets:,} opening brackets, at most {MAX_BRACKETS:,} are parsed")
    return json.loads(text)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step: a concurrent reader sees either all of the old content
    or all of the new. Missing folders are made."""
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
