"""Modules with f64 limbs for devices that cannot round float64 toward zero, such as lavapipe."""

from __future__ import annotations

import functools
import subprocess

from gpu_executor.kernels import build


@functools.cache
def compile_emulated(module: str) -> bytes:
    """A module with f64 limbs, compiled with integers in place of float64."""
    (source,) = (each for each in build.sources() if each.stem == module)
    command = [*build.COMMAND, *source.options, "-DEMULATED", "-o", "-", str(source.path)]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
