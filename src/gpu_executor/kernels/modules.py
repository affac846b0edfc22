"""The compiled SPIR-V modules of this package."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def spirv(module: str) -> bytes:
    """A module by its name."""
    return _file(module).read_bytes()


@functools.cache
def has_module(module: str) -> bool:
    """Whether there is one of that name."""
    return _file(module).is_file()


def _file(module: str) -> Traversable:
    from importlib import resources  # loads `tempfile` and its like

    return resources.files(__package__) / "spirv" / f"{module}.spv"
