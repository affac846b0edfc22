"""Reading and writing files: those that other processes read and write too, and results that must
not be lost."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

MAX_DEPTH = 100
"""Brackets of JSON that may be open at once."""
_JSON_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
MAX_JSON_BYTES = 1 << 20
"""The largest JSON file of the cache folder that is read; they have a few kilobytes."""
OPEN_FLAGS = os.O_RDONLY | sum(
    getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
)
"""Those of these flags that the system has: Windows has only the last one."""
CREATE_FLAGS = (
    os.O_WRONLY
    | os.O_CREAT
    | os.O_EXCL
    | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
)
"""A file that does not exist yet. Flags that the system lacks are left out."""


def parse_json(text: str) -> Any:
    """Parse JSON; raises `ValueError` for text that is not JSON or is nested too deeply.

    Python's parser recurses for every open bracket. A library may have raised the recursion limit
    beyond what the stack can hold, and then deep nesting would crash the process.
    """
    depth = 0
    for mark in _JSON_MARK.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        if depth > MAX_DEPTH:
            raise ValueError(f"the text is nested too deeply, with {depth} open brackets")
    return json.loads(text)


def read_own_file(path: Path, max_bytes: int) -> bytes:
    """Read a regular file of the user's own, or of root's, of at most `max_bytes`.

    Raises `OSError` for everything else that the path may lead to. A FIFO or a device is neither
    waited for nor read, and a symbolic link is not followed: whoever can write to the folder could
    have put it there. Windows tells neither the owner, nor of links while it opens a file: there
    the link is looked for before, and folders of the user are private by default.
    """
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    try:
        handle = os.open(path, OPEN_FLAGS)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from None
        raise
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        if hasattr(os, "geteuid") and info.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, f"it belongs to user {info.st_uid}", str(path))
        if info.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes", str(path))
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(max_bytes)
    finally:
        os.close(handle)


def check_writable(path: Path) -> None:
    """Raise `OSError` if a file cannot be written: for results that take long to compute.

    What the file holds stays as it is; a file that did not exist does not exist afterwards.
    """
    exists = path.exists()
    if exists and not path.is_file():  # a pipe or a terminal must not be opened to try it
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    with path.open("ab"):
        pass
    if not exists:
        Path(os.path.realpath(path)).unlink()  # not the symbolic link that may lead to it


def check_folder_writable(path: Path) -> None:
    """Raise `OSError` if files cannot be written to a folder, as `write_atomically` would: the
    folder is made if it is missing."""
    import tempfile

    _make_folder(path)
    with tempfile.TemporaryFile(dir=path):
        pass


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file's content in one step: a concurrent reader sees either all of the old content
    or all of the new. The file, and folders that are missing, are made for the user alone.

    Windows does not replace a file that another process has open: that raises `PermissionError`,
    and the file keeps its old content.
    """
    _make_folder(path.parent)
    with open_replacement(path, 0o600) as file:
        file.write(content)


@contextlib.contextmanager
def open_replacement(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A new file beside the path, which takes its place at the end of the `with`; after an
    exception it is deleted, and the path has its old content. The mode is as `os.open` takes it."""
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp")
    handle = os.open(temporary, CREATE_FLAGS, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def make_private_folder(path: Path) -> None:
    """Make a folder for files that are trusted as much as the program itself, such as machine code.

    Raises `OSError` if another user could put files there: the folder must belong to the user,
    and no folder above it may be one that others can write to, unless it is sticky, as /tmp is.
    Windows tells neither owners nor modes; folders of the user are private there by default.
    """
    _make_folder(path)
    real = Path(os.path.realpath(path))
    if not hasattr(os, "geteuid"):
        return
    for folder in (real, *real.parents):
        info = folder.stat()
        if info.st_uid not in (0, os.geteuid()):
            raise OSError(errno.EPERM, f"it belongs to user {info.st_uid}", str(folder))
        others = info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if others and (folder == real or not info.st_mode & stat.S_ISVTX):
            raise OSError(errno.EPERM, "other users can write to it", str(folder))


def _make_folder(path: Path) -> None:
    """Make a folder and the folders above it that are missing, with mode 0700."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
