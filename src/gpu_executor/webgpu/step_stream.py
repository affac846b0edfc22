"""`StepStream`: steps on device arrays, encoded and submitted in order and not waited for.

WebGPU orders everything by itself: a dispatch sees what was submitted before it. Commands are
encoded anew for each submission; pipelines, bind groups and parameters are cached.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.common.lru import LruCache
from gpu_executor.kernel import Grid
from gpu_executor.kernel.wgsl import PARAMETER_BYTES
from gpu_executor.steps.bound_steps import CallDispatch, Copy, Fill, Write
from gpu_executor.steps.dispatch_sizes import DispatchSizes, make_dispatch_key
from gpu_executor.steps.status import StatusCheck
from gpu_executor.steps.step_binder import StorageStep
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_queue import (
    BoundDispatch,
    BufferClear,
    BufferCopy,
    Command,
    DeviceQueue,
)
from gpu_executor.webgpu.pipelines import PipelineCompiler

MAX_DISPATCHES, MAX_BIND_GROUPS = 1024, 1024
"""Cached dispatches and bind groups."""


class _PreparedDispatch(NamedTuple):
    """A dispatch apart from its arrays."""

    pipeline: Any
    layout: Any
    push: bytes | None
    """The immediates; None if there are none."""
    parameters: Any
    """The buffer of its parameters, for a device without immediates."""
    grid: Grid


class StepStream:
    """The steps of one device. Safe from several threads."""

    def __init__(
        self,
        device: WebGpuDevice,
        queue: DeviceQueue,
        pipelines: PipelineCompiler,
    ) -> None:
        self._device, self._queue, self._pipelines = device, queue, pipelines
        self._fill = pipelines.fill
        self._dispatches: LruCache[Hashable, _PreparedDispatch] = LruCache()
        self._groups: LruCache[Hashable, Any] = LruCache()
        self._lock = threading.RLock()
        self.submissions = self.dispatches = 0
        self._last: Any = None
        """The latest submission."""
        self.unread_checks: dict[StatusCheck, None] = {}
        """Checks of calls whose status words were not read yet."""
        self._failed: list[StatusCheck] = []
        """Checks that found an error, since the last `synchronize`."""

    def submit(self, steps: Sequence[StorageStep]) -> None:
        """Run steps in order, after everything submitted before; returns at once."""
        with self._lock:
            commands: list[Command] = []
            for step in steps:
                work = step.work
                if isinstance(work, Dispatch | CallDispatch):
                    commands.append(self._bind(work, step.bindings))
                    self.dispatches += 1
                elif isinstance(work, Copy):
                    commands.append(
                        BufferCopy(
                            work.source,
                            work.source_offset,
                            work.target,
                            work.target_offset,
                            -(-work.nbytes // 4) * 4,
                        )
                    )
                elif isinstance(work, Fill):
                    commands.append(self._bind_fill(work))
                elif isinstance(work, Write):
                    # A write comes before what is submitted next, so what is encoded goes first.
                    self._send(commands)
                    commands = []
                    self._device.device.queue.write_buffer(work.buffer, work.offset, work.data)
                if step.check is not None:
                    self.unread_checks[step.check] = None
            self._send(commands)

    def write(self, buffer: Any, offset: int, data: Any) -> None:
        """Write bytes to a buffer, after everything submitted before."""
        with self._lock:
            self._device.device.queue.write_buffer(buffer, offset, data)

    def copy(self, copies: Sequence[BufferCopy]) -> Any:
        """Submit copies, after everything submitted before; return the submission."""
        with self._lock:
            self._send(copies)
            return self._last

    def overwrite(self, buffers: Iterable[Any]) -> None:
        """Fill buffers with zeros, after everything submitted before."""
        with self._lock:
            self._send([BufferClear(each, 0, each.size) for each in buffers])

    def wait(self) -> None:
        """Wait for everything submitted before."""
        self._queue.wait(self._last)

    def settle_checks(self, codes: Mapping[StatusCheck, int]) -> None:
        """Note the status words of completed calls."""
        with self._lock:
            for check, code in codes.items():
                check.settle(code)
                self.unread_checks.pop(check, None)
                if not check.passed:
                    self._failed.append(check)

    def take_failed_checks(self) -> list[StatusCheck]:
        """The checks that found an error since the last call of this function."""
        with self._lock:
            found, self._failed = self._failed, []
        return found

    def list_unread_checks(self) -> list[StatusCheck]:
        """The checks of calls that were submitted, and whose status words were not read yet."""
        with self._lock:
            return list(self.unread_checks)

    def _send(self, commands: Sequence[Command]) -> None:
        if commands:
            self._last = self._queue.submit(commands)
            self.submissions += 1

    def _bind(self, work: Dispatch | CallDispatch, bindings: Sequence[Any]) -> BoundDispatch:
        key: Hashable = work if isinstance(work, CallDispatch) else make_dispatch_key(work)
        prepared = self._dispatches.use(key)
        if prepared is None:
            prepared = self._dispatches[key] = self._prepare(work)
            self._dispatches.evict(MAX_DISPATCHES)
        pipeline, layout, push, parameters, grid = prepared
        group_key = layout, parameters, tuple(bindings)
        group = self._groups.use(group_key)
        if group is None:
            values = iter(bindings)
            ranges = [
                (buffer, offset, -(-nbytes // 4) * 4)
                for buffer, offset, nbytes in zip(values, values, values, strict=True)
            ]
            if parameters is not None:
                ranges.append((parameters, 0, PARAMETER_BYTES))
            group = self._groups[group_key] = self._device.bind(layout, ranges)
            self._groups.evict(MAX_BIND_GROUPS)
        return BoundDispatch(pipeline, group, push, grid)

    def _prepare(self, work: Dispatch | CallDispatch) -> _PreparedDispatch:
        if isinstance(work, CallDispatch):
            size, per_invocation = work.work_group, work.per_invocation
            push, grid = work.push, work.grid
        else:
            sizes = DispatchSizes.choose(work, self._device.info)
            size, per_invocation, push = sizes.work_group, sizes.per_invocation, sizes.push
            grid = (sizes.groups, 1, 1)
        tuned, layout = self._pipelines.make_for_arrays(work.kernel, size, per_invocation)
        padded = push.ljust(tuned.parameter_bytes, b"\0")
        if self._device.immediates:
            return _PreparedDispatch(tuned.pipeline, layout, padded or None, None, grid)
        device = self._device.device
        buffer = device.create_buffer(size=PARAMETER_BYTES, usage=self._device.parameter_usage)
        device.queue.write_buffer(buffer, 0, padded.ljust(PARAMETER_BYTES, b"\0"))
        return _PreparedDispatch(tuned.pipeline, layout, None, buffer, grid)

    def _bind_fill(self, fill: Fill) -> Command:
        if not any(fill.pattern):
            return BufferClear(fill.buffer, fill.offset, fill.nbytes)
        group, grid = self._fill.bind(fill.pattern, fill.buffer, fill.offset, fill.nbytes)
        return BoundDispatch(self._fill.pipeline, group, None, grid)

    def compile_all(
        self, dispatches: Iterable[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Compile the pipelines of dispatches; returns their number."""
        chosen = {
            (each.kernel, sizes.work_group, sizes.per_invocation): None
            for each in dispatches
            if (sizes := DispatchSizes.choose(each, self._device.info))
        }
        for done, tuned in enumerate(chosen):
            progress(done, len(chosen))
            self._pipelines.make_for_arrays(*tuned)
        progress(len(chosen), len(chosen))
        return len(chosen)

    def clear(self) -> None:
        """Forget everything that is cached."""
        with self._lock:
            self._dispatches.clear()
            self._groups.clear()
