"""What the environment can set, read once when a backend opens.

GPU_DEVICE               index, UUID prefix or part of the name of the device to open
GPU_DEVICE_LOCAL         1: always the device-local path, 0: always the host-visible one
GPU_STREAM_CHUNK_ELEMS   the most elements in one chunk of a streamed call
GPU_MEMORY_LIMIT         the most bytes the memory pool may hold
GPU_QUEUED_BYTES         the most bytes that jobs of an executor may read while they wait in line
GPU_WHEN_FULL            block: a job over that waits, raise: it is refused
GPU_CACHE                0: keep no pipeline cache on disk
GPU_CACHE_DIR            the folder of that cache
GPU_CALIBRATE            0: plan without the device's figures
GPU_VALIDATION           1: open with the Khronos validation layer
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Literal, cast, get_args

from gpu_executor.errors import SettingsError

WhenFull = Literal["block", "raise"]
SWITCH = {"1": True, "true": True, "on": True, "yes": True}
SWITCH |= {"0": False, "false": False, "off": False, "no": False}
ELEMENTS = "a chunk has at least one"
BYTES = "it takes a whole number of bytes, 1 at least"


@dataclass(frozen=True, slots=True)
class Settings:
    """Of a backend or an executor; `Settings()` are the defaults, whatever the environment says."""

    device: str | None = None
    device_local: bool | None = None
    stream_chunk_elems: int | None = None
    """None: 524,288 at first, then what suits the device best."""
    memory_limit: int | None = None
    queued_bytes: int | None = None
    """What jobs in an executor's line may read, all of them together; None: any number."""
    when_full: WhenFull = "block"
    cache_dir: Path | None = None
    """Where pipelines are kept between processes; None keeps them nowhere."""
    calibrate: bool = True
    """Whether plans go by what the device was measured to do, where that can be kept on disk."""
    validation: bool = False

    def __post_init__(self) -> None:
        # What came from the environment was checked before, by the variables' names.
        if self.stream_chunk_elems is not None:
            check_positive("stream_chunk_elems", self.stream_chunk_elems, ELEMENTS)
        if self.memory_limit is not None:
            check_positive("memory_limit", self.memory_limit, BYTES)
        if self.queued_bytes is not None:
            check_positive("queued_bytes", self.queued_bytes, BYTES)
        _check_when_full("when_full", self.when_full)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Read the variables above; a value that means nothing is a `SettingsError`."""
        return cls(
            device=environ.get("GPU_DEVICE") or None,
            device_local=_switch(environ, "GPU_DEVICE_LOCAL"),
            stream_chunk_elems=_positive(environ, "GPU_STREAM_CHUNK_ELEMS", ELEMENTS),
            memory_limit=_positive(environ, "GPU_MEMORY_LIMIT", BYTES),
            queued_bytes=_positive(environ, "GPU_QUEUED_BYTES", BYTES),
            when_full=_when_full(environ, "GPU_WHEN_FULL"),
            cache_dir=_cache_dir(environ),
            calibrate=_switch(environ, "GPU_CALIBRATE") is not False,
            validation=_switch(environ, "GPU_VALIDATION") or False,
        )

    def limited(
        self, memory_limit: int | None, queued_bytes: int | None, when_full: WhenFull | None
    ) -> Settings:
        """The same with those limits that are given."""
        return replace(
            self,
            memory_limit=self.memory_limit if memory_limit is None else memory_limit,
            queued_bytes=self.queued_bytes if queued_bytes is None else queued_bytes,
            when_full=self.when_full if when_full is None else when_full,
        )


def check_positive(name: str, value: object, takes: str) -> None:
    """Raise where it is anything but a whole number of 1 or more."""
    if not isinstance(value, Integral) or value < 1:
        raise SettingsError(f"{name} is {value!r}; {takes}")


def _check_when_full(name: str, value: object) -> None:
    if value not in get_args(WhenFull):
        raise SettingsError(f"{name} is {value!r}; it is 'block' or 'raise'")


def _when_full(environ: Mapping[str, str], name: str) -> WhenFull:
    text = environ.get(name, "").strip() or "block"
    _check_when_full(name, text)
    return cast(WhenFull, text)


def _cache_dir(environ: Mapping[str, str]) -> Path | None:
    if _switch(environ, "GPU_CACHE") is False:
        return None
    named = environ.get("GPU_CACHE_DIR")
    if not named:
        import platformdirs

        return platformdirs.user_cache_path("gpu-executor")
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise SettingsError(f"GPU_CACHE_DIR is {named!r}: {error}") from None


def _switch(environ: Mapping[str, str], name: str) -> bool | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if text.lower() not in SWITCH:
        raise SettingsError(f"{name} is {text!r}; set it to 1 or 0, or leave it unset")
    return SWITCH[text.lower()]


def _positive(environ: Mapping[str, str], name: str, takes: str) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    try:
        number = int(text.replace("_", "").replace(",", ""))
    except ValueError:
        raise SettingsError(f"{name} is {text!r}; it takes a whole number") from None
    check_positive(name, number, takes)
    return number
