"""Main memory: what the machine has and what this process holds."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any


class MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of Windows."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 6),
    )


def read_main_memory() -> int | None:
    """Bytes of main memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # AttributeError: Windows
        windows: Any = getattr(ctypes, "windll", None)
    status = MemoryStatus(ctypes.sizeof(MemoryStatus))
    if windows is None or not windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        return None
    return int(status.total)


def read_resident_bytes() -> int | None:
    """Bytes of main memory that this process holds; None where the system does not say: only Linux
    has it in /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
