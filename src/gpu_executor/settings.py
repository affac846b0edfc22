"""Settings, and the environment variables that they are read from when a backend opens.

GPU_DEVICE               index, UUID prefix or part of the name of the device to open
GPU_DEVICE_LOCAL         1: always the device-local path, 0: always the host-visible path
GPU_STREAM_CHUNK_ELEMS   most elements in one chunk of a call
GPU_MEMORY_LIMIT         most bytes that the memory pool may hold
GPU_IDLE_MEMORY          most bytes that a backend keeps for later calls while nobody uses them
GPU_QUEUED_BYTES         most bytes that waiting jobs of an executor may read
GPU_WHEN_FULL            when GPU_QUEUED_BYTES is reached, block: submit waits, raise: submit raises
GPU_CACHE                0: store nothing on disk; this also turns automatic calibration off
GPU_CACHE_DIR            folder of the files on disk
GPU_CALIBRATE            0: plan with fixed thresholds, without calibration
GPU_QUICK_PIPELINES      0: compile every pipeline in its usual form before its first use
GPU_VALIDATION           1: open with the Khronos validation layer
GPU_SPIRV_VAL            auto: validate users' SPIR-V with spirv-val where it is installed, off: do
                         not validate, require: raise an error where spirv-val is not installed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Literal, cast, get_args

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import SettingsError

WhenFull = Literal["block", "raise"]
SpirvVal = Literal["auto", "off", "require"]
SWITCH_VALUES = {"1": True, "true": True, "on": True, "yes": True}
SWITCH_VALUES |= {"0": False, "false": False, "off": False, "no": False}
TAKES_ELEMENTS = "it takes a whole number of elements, 1 at least"
TAKES_BYTES = "it takes a whole number of bytes, 1 at least"
IDLE_MEMORY = 256 << 20
FOLDER = "gpu-executor"
"""The name of the folder for files on disk, in the user's cache folder."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a backend or an executor. `Settings()` are the defaults; it ignores the
    environment, which `Settings.from_environment()` reads.

    Attributes:
        device (str | None): An index, a prefix of the UUID or a part of the name of the device to
            open.
        device_local (bool | None): True: always the device-local path; False: always the
            host-visible path; None: as the plan chooses.
        stream_chunk_elems (int | None): Most elements of a chunk. None: 524,288 without
            calibration, else as the plan chooses.
        memory_limit (int | None): Most bytes that the memory pool may hold; None: no limit.
        idle_memory (int): Most bytes that a backend keeps for later calls while nobody uses them;
            twice the bytes of the largest call so far if that is more.
        queued_bytes (int | None): Most bytes that the waiting jobs of an executor may read
            together; None: no limit.
        when_full (str): What `submit` does then: "block" waits, "raise" raises `QueueFullError`.
        cache_dir (Path | None): The folder of compiled pipelines, of SPIR-V compiled from GLSL and
            of the calibration; None stores nothing on disk.
        calibrate (bool): Whether the device is calibrated automatically, if `cache_dir` is set to
            store the result.
        quick_pipelines (bool): Whether kernels that a driver compiles slowly run in a form that
            compiles fast until their usual form is compiled in the background.
        validation (bool): Whether the device is opened with the Khronos validation layer.
        spirv_val (str): Whether users' SPIR-V is validated with `spirv-val` before a driver gets
            it: "auto" (where it is installed), "off" or "require".

    Raises:
        SettingsError: A value is invalid.
    """

    device: str | None = None
    device_local: bool | None = None
    stream_chunk_elems: int | None = None
    memory_limit: int | None = None
    idle_memory: int = IDLE_MEMORY
    queued_bytes: int | None = None
    when_full: WhenFull = "block"
    cache_dir: Path | None = None
    calibrate: bool = True
    quick_pipelines: bool = True
    validation: bool = False
    spirv_val: SpirvVal = "auto"

    def __post_init__(self) -> None:
        # `from_environment` has checked its values already, under the names of the variables.
        if self.stream_chunk_elems is not None:
            check_positive("stream_chunk_elems", self.stream_chunk_elems, TAKES_ELEMENTS)
        if self.memory_limit is not None:
            check_positive("memory_limit", self.memory_limit, TAKES_BYTES)
        check_positive("idle_memory", self.idle_memory, TAKES_BYTES)
        if self.queued_bytes is not None:
            check_positive("queued_bytes", self.queued_bytes, TAKES_BYTES)
        check_when_full("when_full", self.when_full)
        _check_spirv_val("spirv_val", self.spirv_val)
        check_switch("device_local", self.device_local, (None, True, False))
        check_switch("calibrate", self.calibrate, (True, False))
        check_switch("quick_pipelines", self.quick_pipelines, (True, False))
        check_switch("validation", self.validation, (True, False))
        if isinstance(self.cache_dir, str):
            object.__setattr__(self, "cache_dir", Path(self.cache_dir))
        if self.cache_dir is not None and not _is_path(self.cache_dir):
            raise SettingsError(
                f"cache_dir is {self.cache_dir!r}; it must be the path of a folder, or None"
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the environment variables.

        Args:
            environ (mapping): The variables by name.

        Raises:
            SettingsError: A variable has an invalid value.
        """
        return cls(
            device=environ.get("GPU_DEVICE") or None,
            device_local=_read_switch(environ, "GPU_DEVICE_LOCAL"),
            stream_chunk_elems=_read_positive(environ, "GPU_STREAM_CHUNK_ELEMS", TAKES_ELEMENTS),
            memory_limit=_read_positive(environ, "GPU_MEMORY_LIMIT", TAKES_BYTES),
            idle_memory=_read_positive(environ, "GPU_IDLE_MEMORY", TAKES_BYTES) or IDLE_MEMORY,
            queued_bytes=_read_positive(environ, "GPU_QUEUED_BYTES", TAKES_BYTES),
            when_full=_read_when_full(environ, "GPU_WHEN_FULL"),
            cache_dir=_read_cache_dir(environ),
            calibrate=_read_switch(environ, "GPU_CALIBRATE") is not False,
            quick_pipelines=_read_switch(environ, "GPU_QUICK_PIPELINES") is not False,
            validation=_read_switch(environ, "GPU_VALIDATION") or False,
            spirv_val=_read_spirv_val(environ, "GPU_SPIRV_VAL"),
        )

    def replace_limits(
        self, memory_limit: int | None, queued_bytes: int | None, when_full: WhenFull | None
    ) -> Settings:
        """The same settings with the limits that are not None replaced.

        Args:
            memory_limit (int | None): Replaces `memory_limit`.
            queued_bytes (int | None): Replaces `queued_bytes`.
            when_full (str | None): Replaces `when_full`.
        """
        return replace(
            self,
            memory_limit=self.memory_limit if memory_limit is None else memory_limit,
            queued_bytes=self.queued_bytes if queued_bytes is None else queued_bytes,
            when_full=self.when_full if when_full is None else when_full,
        )


def resolve_settings(settings: Settings | None) -> Settings:
    """The settings that a caller gave, or else those of the environment."""
    if settings is None:
        return Settings.from_environment()
    if not isinstance(settings, Settings):
        raise SettingsError(
            f"settings is of type {type(settings).__name__}; it must be gx.Settings(...), or None "
            "for the settings of the environment"
        )
    return settings


def check_switch(name: str, value: object, allowed: Sequence[bool | None]) -> None:
    """Raise `SettingsError` unless the value is among those."""
    if value not in allowed:
        raise SettingsError(f"{name} is {value!r}; it must be {' or '.join(map(str, allowed))}")


def check_positive(name: str, value: object, takes: str) -> None:
    """Raise `SettingsError` unless the value is a whole number of 1 or more."""
    if not isinstance(value, Integral) or value < 1:
        raise SettingsError(f"{name} is {value!r}; {takes}")


def _is_path(value: object) -> bool:
    return isinstance(value, Path) and "\0" not in str(value)


def check_when_full(name: str, value: object) -> None:
    """Raise `SettingsError` unless the value is "block" or "raise"."""
    if value not in get_args(WhenFull):
        raise SettingsError(f"{name} is {value!r}; it must be 'block' or 'raise'")


def _read_when_full(environ: Mapping[str, str], name: str) -> WhenFull:
    text = environ.get(name, "").strip() or "block"
    check_when_full(name, text)
    return cast(WhenFull, text)


def _check_spirv_val(name: str, value: object) -> None:
    if value not in get_args(SpirvVal):
        raise SettingsError(f"{name} is {value!r}; it must be 'auto', 'off' or 'require'")


def _read_spirv_val(environ: Mapping[str, str], name: str) -> SpirvVal:
    text = environ.get(name, "").strip() or "auto"
    _check_spirv_val(name, text)
    return cast(SpirvVal, text)


def _read_cache_dir(environ: Mapping[str, str]) -> Path | None:
    if _read_switch(environ, "GPU_CACHE") is False:
        return None
    named = environ.get("GPU_CACHE_DIR")
    if not named:
        return _find_user_cache(environ)
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"GPU_CACHE_DIR is {named!r}: {error}") from None


def _find_user_cache(environ: Mapping[str, str]) -> Path:
    """The folder that `platformdirs` names. It takes 8 ms to import, so the usual case on Linux is
    decided without it."""
    if sys.platform == "linux":
        for variable, folder in (("XDG_CACHE_HOME", ""), ("HOME", ".cache")):
            if (base := Path(environ.get(variable, ""))).is_absolute():
                return base / folder / FOLDER
    import platformdirs

    return platformdirs.user_cache_path(FOLDER)


def _read_switch(environ: Mapping[str, str], name: str) -> bool | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if text.lower() not in SWITCH_VALUES:
        raise SettingsError(f"{name} is {text!r}; set it to 1 or 0, or leave it unset")
    return SWITCH_VALUES[text.lower()]


def _read_positive(environ: Mapping[str, str], name: str, takes: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        number = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise SettingsError(f"{name} is {text!r}; it takes a whole number") from None
    check_positive(name, number, takes)
    return number
