"""Files that are kept between processes."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_in_one_step(path: Path, content: bytes) -> None:
    """Whoever reads the file meanwhile sees all of the old or all of the new content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
