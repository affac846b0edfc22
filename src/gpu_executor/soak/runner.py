"""The soak run: load generators call executors in phases, and memory is sampled between phases."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpu_executor.errors import GpuError
from gpu_executor.executor import GpuExecutor
from gpu_executor.executor.executor_stats import ExecutorStats
from gpu_executor.soak.fault_injection import FaultInjector
from gpu_executor.soak.load_generator import LoadGenerator
from gpu_executor.soak.memory import (
    MemorySample,
    MemoryTrend,
    check_memory_is_reported,
    find_trends,
    limit_heap_arenas,
    sample_memory,
)
from gpu_executor.soak.tally import Tally
from gpu_executor.vulkan.binding import count_live_objects

THREADS = 3
MIN_PHASES = 24
MAX_PHASE_SECONDS = 10.0
JOIN_TIMEOUT = 120.0
"""Seconds that a thread may take beyond the end of a phase before its call counts as lost."""


@dataclass(frozen=True, slots=True)
class SoakReport:
    """The counts and defects of a soak run."""

    seed: int
    seconds: float
    tally: Tally
    faults: dict[tuple[str, str], int]
    """Faults that fired, by kind and call."""
    restarts: int
    """Sequences of field operations that were restarted after a fault."""
    executors: tuple[ExecutorStats, ...]
    """Statistics of the executors open at the end, then of those that had been replaced."""
    absent: tuple[str, ...]
    """Backends that could not be opened, and why."""
    samples: tuple[MemorySample, ...]
    trends: tuple[MemoryTrend, ...]
    leaked: dict[str, int]
    """Vulkan objects that still exist after everything was closed, by type."""

    @property
    def passed(self) -> bool:
        return not self.tally.defects


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """The arguments of one executor."""

    backend: Literal["vulkan", "webgpu", "cpu"]
    devices: list[str | int] | None = None
    """Naming one device twice makes an executor with two devices."""
    check: float = 0.0
    small_on_cpu: bool = False
    queued_bytes: int | None = None

    def open(self) -> GpuExecutor:
        return GpuExecutor(
            self.backend,
            devices=self.devices,
            check=self.check,
            small_on_cpu=self.small_on_cpu,
            queued_bytes=self.queued_bytes,
        )


EXECUTOR_CONFIGS = (
    ExecutorConfig("vulkan"),
    ExecutorConfig("vulkan", [0, 0], check=0.02, queued_bytes=1 << 22),
    ExecutorConfig("webgpu", small_on_cpu=True),
    ExecutorConfig("cpu", queued_bytes=1 << 18),
)
"""Every option is used by at least one executor. The threads sometimes reach the limits of
`queued_bytes`."""


class ExecutorSet:
    """The executors under test, open within a `with` block. Absent backends are left out."""

    def __init__(self) -> None:
        self.executors: list[GpuExecutor] = []
        self._configs: list[ExecutorConfig] = []
        self._replaced: list[ExecutorStats] = []
        self.absent: list[str] = []
        """Backends that could not be opened, and why."""

    def __enter__(self) -> ExecutorSet:
        for config in EXECUTOR_CONFIGS:
            try:
                self.executors.append(config.open())
            except GpuError as error:
                self.absent.append(f"{config.backend}: {error}")
            else:
                self._configs.append(config)
        return self

    def __exit__(self, *_exception: object) -> None:
        with contextlib.ExitStack() as closing:
            for executor in self.executors:
                closing.callback(executor.shutdown)
        self.executors.clear()

    def replace_failed(self) -> None:
        """Replace executors that have a permanently failed device.

        A device fails permanently when a second fault hits while it is being reopened.
        """
        for index, config in enumerate(self._configs):
            stats = self.executors[index].stats()
            if any(each.failed is not None for each in stats.devices):
                self.executors[index].shutdown()
                self._replaced.append(stats)
                self.executors[index] = config.open()

    def abandon(self) -> None:
        """Shut down without waiting, because a call does not return."""
        for executor in self.executors:
            self._replaced.append(executor.stats())
            executor.shutdown(wait=False, cancel_futures=True)
        self.executors.clear()

    def stats(self) -> Iterator[ExecutorStats]:
        """Return the statistics of the open executors, then of the replaced ones."""
        yield from (executor.stats() for executor in self.executors)
        yield from self._replaced


def soak(
    minutes: float,
    seed: int,
    faults_per_minute: float = 60.0,
    show_progress: Callable[[float], object] = lambda _share: None,
) -> SoakReport:
    """Run for `minutes`; `show_progress` receives the share of the time that has passed."""
    check_memory_is_reported()
    limit_heap_arenas()
    load_seeds, fault_seed = np.random.SeedSequence(seed).spawn(2)
    rngs = [np.random.default_rng(each) for each in load_seeds.spawn(THREADS)]
    tally = Tally()
    faults = FaultInjector(np.random.default_rng(fault_seed), faults_per_minute)
    gc.collect()
    before = count_live_objects()
    begun = time.monotonic()
    with _report_thread_deaths(tally), faults, ExecutorSet() as executors:
        generators = [LoadGenerator(rng, executors.executors, faults, tally) for rng in rngs]
        opened, samples = time.monotonic(), []
        for end in _list_phase_ends(opened, 60 * minutes):
            if not _run_phase(generators, end, tally):
                executors.abandon()
                break
            faults.disarm()
            executors.replace_failed()
            samples.append(_sample(begun, executors, generators))
            show_progress((time.monotonic() - opened) / (60 * minutes))
        else:
            for generator in generators:
                generator.field_operations.close()
        stats, absent = tuple(executors.stats()), tuple(executors.absent)
    gc.collect()
    trends = find_trends(samples)
    for each in trends:
        if each.grew:
            tally.report("growth", f"{each.what}: {each.first:,.0f} to {each.last:,.0f}")
    leaked = {kind: count - before.get(kind, 0) for kind, count in count_live_objects().items()}
    leaked = {kind: count for kind, count in leaked.items() if count}
    if leaked:
        tally.report("growth", f"Vulkan objects exist after closing: {leaked}")
    return SoakReport(
        seed=seed,
        seconds=time.monotonic() - begun,
        tally=tally,
        faults=dict(faults.fired),
        restarts=sum(generator.field_operations.restarts for generator in generators),
        executors=stats,
        absent=absent,
        samples=tuple(samples),
        trends=tuple(trends),
        leaked=leaked,
    )


def _list_phase_ends(begun: float, seconds: float) -> Iterator[float]:
    """Yield the times, on the monotonic clock, at which the phases end."""
    number = max(MIN_PHASES, round(seconds / MAX_PHASE_SECONDS))
    yield from (begun + seconds * (index + 1) / number for index in range(number))


def _run_phase(generators: Sequence[LoadGenerator], end: float, tally: Tally) -> bool:
    """Run every generator in a thread until `end`; return whether all threads finished."""
    threads = [
        threading.Thread(target=generator.run, args=(end,), name=f"load {index}", daemon=True)
        for index, generator in enumerate(generators)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0) + JOIN_TIMEOUT)
    stuck = [each for each, thread in zip(generators, threads, strict=True) if thread.is_alive()]
    for generator in stuck:
        tally.report("lost", f"no result of {generator.activity}")
    if stuck:
        faulthandler.dump_traceback(2)  # the stacks of all threads, to stderr
    return not stuck


def _sample(
    begun: float, executors: ExecutorSet, generators: Sequence[LoadGenerator]
) -> MemorySample:
    """Check the retained results again, drop them, and sample memory."""
    for generator in generators:
        generator.recheck_results()
    held = Counter[str]()
    for executor in executors.executors:
        for device in executor.stats().devices:
            held[device.backend] += device.inside.bytes_held
    for generator in generators:
        held["vulkan"] += generator.field_operations.count_bytes()
    software = not any(
        candidate.on_gpu for each in executors.executors for candidate in each.ranking
    )
    return sample_memory(begun, held["vulkan"], held["webgpu"], software=software)


@contextlib.contextmanager
def _report_thread_deaths(tally: Tally) -> Iterator[None]:
    """Report every exception that ends any thread as a defect."""
    before = threading.excepthook

    def report(details: threading.ExceptHookArgs) -> None:
        tally.report_thread_death(details)
        sys.__excepthook__(
            details.exc_type, details.exc_value or Exception(), details.exc_traceback
        )

    threading.excepthook = report
    try:
        yield
    finally:
        threading.excepthook = before
