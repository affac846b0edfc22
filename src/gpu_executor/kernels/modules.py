"""The compiled SPIR-V modules of this package."""

from __future__ import annotations

import functools
from importlib import resources


def spirv(module: str) -> bytes:
    """A module by its name."""
    return (resources.files(__package__) / "spirv" / f"{module}.spv").read_bytes()


@functools.cache
def has_module(module: str) -> bool:
    """Whether there is one of that name."""
    return (resources.files(__package__) / "spirv" / f"{module}.spv").is_file()
