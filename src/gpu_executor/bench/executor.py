"""What GpuExecutor adds to its backend, and what gathering gains: all in one run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench.aims import Aim
from gpu_executor.bench.timing import median_seconds
from gpu_executor.executor import GpuExecutor
from gpu_executor.kernels import load
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

FEW = 64
MAPPED_JOBS, MAPPED_ELEMENTS = 1_000, 4_096
THREADS = 8
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """Microseconds of one small call, jobs a second, and milliseconds of a thousand jobs."""

    direct_us: float
    run_us: float
    submit_us: float
    """Until the future has its result."""
    batch_ms: float
    """Pipelined, by the backend."""
    map_ms: float
    one_thread: float
    """Small jobs a second, each waited for."""
    threads: float
    """The same by all threads together."""


def measure(
    *, jobs: int = MAPPED_JOBS, small_jobs: int = 400, rounds: int = ROUNDS, budget: float = 0.5
) -> Figures:
    """Small additions by each way; then many of 4 K elements; then small ones from threads."""
    with GpuExecutor("vulkan") as executor:
        gpu = executor._devices[0].backend
        assert isinstance(gpu, PersistentVulkanBackend)
        kernel = load("bls12_381_fq_add")
        a, b = (np.full((FEW, 6), value, np.uint64) for value in (1, 2))
        if not (executor.submit(kernel, a, b).result() == a + b).all():
            raise AssertionError("1 + 2 is not 3")

        def alone() -> None:
            executor.submit(kernel, a, b).result()

        ways: list[Callable[[], object]] = [
            lambda: gpu.run(kernel, a, b),
            lambda: executor.run(kernel, a, b),
            alone,
        ]
        direct, run, submit = (median_seconds(way, budget=budget) * 1e6 for way in ways)
        x = np.ones((MAPPED_ELEMENTS, 6), np.uint64)

        def batch() -> None:
            gpu.run_batch(kernel, [(x, x)] * jobs, pipelined=True)

        def mapped() -> None:
            for _ in executor.map(kernel, *[(x for _ in range(jobs)) for _ in range(2)]):
                pass

        batch_ms, map_ms = (1e3 * each for each in _in_turns([batch, mapped], rounds))
        one, many = _in_turns(
            [
                lambda: _by_threads(alone, small_jobs, 1),
                lambda: _by_threads(alone, small_jobs, THREADS),
            ],
            rounds,
        )
        return Figures(
            direct, run, submit, batch_ms, map_ms, small_jobs / one, THREADS * small_jobs / many
        )


def aims(figures: Figures, *, on_gpu: bool) -> list[Aim]:
    """What was aimed for."""
    added, waited = figures.run_us - figures.direct_us, figures.submit_us - figures.direct_us
    of_batch, gain = figures.batch_ms / figures.map_ms, figures.threads / figures.one_thread
    return [
        Aim("run, more than a direct call", added, 20, "us", at_most=True),
        Aim("submit and result, more than a direct call", waited, 60, "us", at_most=True),
        Aim("map, of the pipelined batch's throughput", of_batch, 0.9, "x"),
        Aim(f"{THREADS} threads, of one's throughput", gain, 3 if on_gpu else 1.8, "x"),
    ]


def _in_turns(ways: list[Callable[[], None]], rounds: int) -> list[float]:
    """The least seconds of each."""
    for way in ways:
        way()
    best = [float("inf")] * len(ways)
    for _ in range(rounds):
        for index, way in enumerate(ways):
            begun = time.perf_counter()
            way()
            best[index] = min(best[index], time.perf_counter() - begun)
    return best


def _by_threads(call: Callable[[], None], times: int, count: int) -> None:
    def work() -> None:
        for _ in range(times):
            call()

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
