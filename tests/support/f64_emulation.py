"""Modules with f64 limbs for devices that cannot round float64 toward zero, such as lavapipe."""

from __future__ import annotations

import functools

from gpu_executor.kernels import build
from tests.support.glsl import run_glslc


@functools.cache
def compile_emulated(module: str) -> bytes:
    """A module with f64 limbs, compiled with integers in place of float64."""
    (source,) = (each for each in build.sources() if each.stem == module)
    command = [*build.COMMAND, *source.options, "-DEMULATED", "-o", "-", str(source.path)]
    return run_glslc(command, included=read_sources())


@functools.cache
def read_sources() -> bytes:
    """All that modules may include."""
    return b"".join(path.read_bytes() for path in sorted(build.GLSL.rglob("*.*")))
