"""What an executor tells about itself: the plan that `GpuExecutor.explain` returns, and the profile
that `GpuExecutor.profile` returns."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from gpu_executor.calls.call import as_arrays
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ClosedError
from gpu_executor.executor.candidates import DeviceRanking
from gpu_executor.executor.device_metrics import DeviceProfile
from gpu_executor.executor.device_pool import DevicePool
from gpu_executor.executor.jobs import CallArguments, check_kernel
from gpu_executor.executor.open_device import OpenDevice
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Plan
from gpu_executor.telemetry import load_exporter
from gpu_executor.telemetry.spans import Span, TraceFile


@dataclass(frozen=True, slots=True)
class ExecutorPlan(Plan):
    """The devices of an executor, and how one of them would run a call."""

    devices: tuple[str, ...]
    """The ranking of the devices and their shares of large calls, in lines."""
    plan: Plan | None
    """The plan of the device that would run the call; None for a kernel that has only WGSL, which
    runs on a WebGPU device beside the others."""

    def __str__(self) -> str:
        return "\n".join([*self.devices, *([] if self.plan is None else ["", str(self.plan)])])


def explain(
    ranking: DeviceRanking,
    pool: DevicePool,
    kernel: Kernel,
    arrays: Sequence[Any],
    params: Any,
    out_shape: Any,
) -> ExecutorPlan:
    """The ranking of the devices, their shares of large calls, and the plan for a call."""
    pool.queue.check_open()
    check_kernel(kernel)
    opened = {id(device.candidate) for device in pool.devices}
    lines = ["devices, best first (* is open):"]
    companions = pool.webgpu.find_candidates() if pool.webgpu and pool.runs_beside(kernel) else ()
    for place, candidate in enumerate(ranking):
        rate = "" if candidate.rate is None else f", {candidate.rate / 1e9:.1f} GB/s as calibrated"
        lines.append(f"  {'*' if id(candidate) in opened else ' '} {place}: {candidate}{rate}")
    lines += [f"    -  {note}" for note in ranking.notes]
    device = next((each for each in pool.devices if each.failed is None), pool.devices[0])
    call = CallArguments(tuple(as_arrays(kernel, arrays)) if len(arrays) != 1 else tuple(arrays))
    if call.touches_device():
        device = pool.placement.find_device(kernel.name, call.label_arrays())
        index = pool.devices.index(device)
        lines.append(
            f"the device arrays are on device {index}, {device.candidate}: it runs the call"
        )
    else:
        lines += _explain_choice(pool, kernel, device)
        if pool.webgpu is not None and pool.runs_beside(kernel):
            runner = str(companions[0]) if companions else "no device"
            return ExecutorPlan((*lines, f"{kernel.name} has only WGSL: {runner} runs it"), None)
    try:
        plan = device.use(
            lambda backend: backend.explain(kernel, *arrays, params=params, out_shape=out_shape)
        )
    except ClosedError:
        pool.queue.check_open()  # raises a clearer error if the executor was shut down meanwhile
        raise
    return ExecutorPlan(tuple(lines), plan)


def _explain_choice(pool: DevicePool, kernel: Kernel, first: OpenDevice) -> list[str]:
    """Which devices run calls on NumPy arrays; `first` is the first usable one."""
    lines: list[str] = []
    if len(pool.devices) > 1:
        lines.append("shares of a large call or a batch, by the measured rates:")
        for index, (device, share) in enumerate(
            zip(pool.devices, pool.rates.compute_shares(kernel), strict=True)
        ):
            state = "" if device.failed is None else f", quarantined: {device.failed}"
            lines.append(f"    {index}: {share:.0%} {device.candidate}{state}")
    if pool.small_calls is not None:
        cpu_sizes = pool.small_calls.list_cpu_sizes(first.candidate, kernel)
        sizes = ", ".join(f"{size:,}" for size in cpu_sizes)
        measured = f"under {sizes} bytes" if sizes else "none so far"
        lines.append(f"small calls of {kernel.name} measured to be faster on the CPU: {measured}")
    return lines


class ExecutorProfile:
    """A profile of an executor, recorded inside its `with` block: the jobs of every device, and the
    stages of every chunk."""

    def __init__(self, devices: Sequence[OpenDevice], trace: TraceFile) -> None:
        self._devices, self._trace = devices, trace
        self.devices = [DeviceProfile() for _ in devices]
        """The profile of each device, in the executor's order: its `spans` and `stages()`."""
        self._on_exit = contextlib.ExitStack()

    @property
    def spans(self) -> list[Span]:
        """The spans of all devices, with times of `time.perf_counter_ns`."""
        return [span for each in self.devices for span in each.spans]

    def stages(self) -> dict[str, float]:
        """Seconds by stage, summed over all chunks of all devices."""
        totals: Counter[str] = Counter()
        for each in self.devices:
            totals.update(each.stages())
        return dict(totals)

    def save_trace(self, path: str | Path) -> None:
        """Write a trace file for Perfetto or chrome://tracing: one process for each device, in it
        one track for each queue and host thread."""
        names = [f"{number}: {each.candidate}" for number, each in enumerate(self._devices)]
        spans = [each.spans for each in self.devices]
        load_exporter("device traces")(list(zip(names, spans, strict=True)), Path(path))

    def stop(self) -> None:
        """Record nothing more."""
        self._on_exit.close()

    def __enter__(self) -> Self:
        # New profiles: an active `with` block of this object goes on when a nested one is refused.
        profiles = [DeviceProfile() for _ in self._devices]
        with contextlib.ExitStack() as started:
            for device, profile in zip(self._devices, profiles, strict=True):
                started.callback(profile.stop)
                # Called before `profile.stop`: a device may be reopened at this moment.
                started.callback(device.stop_profile, profile)
                device.start_profile(profile)
            self.devices, self._on_exit = profiles, started.pop_all()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.stop()
        self._trace.save(self.save_trace, error)
