"""Spans: what ran from when to when, on which track of a trace; and the file of a trace."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from gpu_executor.common.files import check_writable
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import GpuError, SettingsError

log = logging.getLogger("gpu_executor.spans")
SpanAttributes = Mapping[str, str | int | float | bool]
"""Attributes of an OpenTelemetry span."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stage of a chunk or a whole job, with the times of `time.perf_counter_ns`."""

    track: str
    """The device's queue or the host thread."""
    stage: str
    begin_ns: int
    end_ns: int
    chunk: int
    """The number of the chunk, or of the job."""

    @property
    def nanoseconds(self) -> int:
        return self.end_ns - self.begin_ns


class TraceFile:
    """The file that a profile writes its trace to when it ends; None: it writes none."""

    def __init__(self, path: str | Path | None) -> None:
        """A path that cannot be written raises `SettingsError`, before anything is profiled."""
        try:
            self._path = None if path is None else Path(path)
            if self._path is not None:
                check_writable(self._path)
        except (OSError, TypeError, ValueError) as error:
            raise SettingsError(f"trace is {path!r}, which cannot be written: {error}") from None

    def save(self, save: Callable[[Path], None], error: BaseException | None) -> None:
        """Write the trace. `error` is what the profiled code raised: if the file cannot be written
        now, the code's error is raised and this one is logged."""
        if self._path is None:
            return
        try:
            save(self._path)
        except GpuError as failure:
            if error is None:
                raise
            log.warning("%s", failure)
