"""Validates whole modules with `spirv-val` of SPIRV-Tools, where it is installed.

A driver need not check the code that it is given, and may crash on invalid code. The reader finds
damage of some kinds (`instructions.py`). `spirv-val` checks the rules of SPIR-V and of Vulkan.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from gpu_executor.errors import SettingsError, SpirvError
from gpu_executor.settings import SpirvVal

TOOL = "spirv-val"
SECONDS = 60.0  # it needs about 10 ms; the time limit is for modules that make it hang
_NEWEST_VULKAN = (1, 3)  # the newest one that releases of spirv-val before 2024 know
_LONGEST_MESSAGE = 2000  # characters

_valid: set[tuple[str, tuple[str, ...]]] = set()
"""The digests of the modules that `spirv-val` accepted in this process, with its options."""
_lock = threading.Lock()


def validate_module(
    code: bytes,
    digest: str,
    *,
    vulkan: tuple[int, int],
    features: Collection[str],
    mode: SpirvVal,
) -> None:
    """Raise SpirvError if `spirv-val` rejects the module for a device.

    `digest` is the SHA-256 of `code`; a module is validated once in a process. `vulkan` is the
    device's version and `features` its features. `mode` is "auto" (validate where `spirv-val` is
    installed), "off", or "require" (raise SettingsError where it is not installed).
    """
    if mode == "off":
        return
    options = _choose_options(vulkan, features)
    with _lock:
        if (digest, options) in _valid:
            return
    import shutil  # imported late: most processes run the package's own modules only

    path = shutil.which(TOOL)
    if path is None:
        if mode == "require":
            raise SettingsError(
                f"GPU_SPIRV_VAL is 'require', but {TOOL} is not installed: install SPIRV-Tools "
                "(spirv-tools), or set GPU_SPIRV_VAL=auto"
            )
        return
    import subprocess

    try:
        done = subprocess.run(
            [path, *options, "-"],
            input=code,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SpirvError(
            f"{TOOL} did not finish within {SECONDS:.0f} s; set GPU_SPIRV_VAL=off to run the module"
            " without validation"
        ) from None
    except OSError as error:
        raise SettingsError(
            f"{path} cannot be run ({error}): repair it, or set GPU_SPIRV_VAL=off"
        ) from error
    if done.returncode:
        message = done.stdout.decode(errors="replace").strip()[:_LONGEST_MESSAGE]
        raise SpirvError(
            f"{TOOL} rejects the module: {message or f'exit code {done.returncode}'}\n"
            "(recompile it, or set GPU_SPIRV_VAL=off to run it at your own risk)"
        )
    with _lock:
        _valid.add((digest, options))


def _choose_options(vulkan: tuple[int, int], features: Collection[str]) -> tuple[str, ...]:
    major, minor = min(vulkan, _NEWEST_VULKAN)
    options = ["--target-env", f"vulkan{major}.{minor}", "--allow-localsizeid"]
    if "scalarBlockLayout" in features:
        options.append("--scalar-block-layout")
    return tuple(options)
