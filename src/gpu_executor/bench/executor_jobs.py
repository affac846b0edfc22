"""The time that GpuExecutor adds to a call of its backend, and the gain of coalescing, in one
run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench.measurement import Target
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import Function, time_function, time_interleaved
from gpu_executor.executor import GpuExecutor
from gpu_executor.kernels import load

SMALL_ELEMENTS = 64
MAP_JOBS, MAP_ELEMENTS = 1_000, 4_096
THREADS = 8
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class ExecutorMeasurement:
    """Times of a small call and of `MAP_JOBS` jobs; rates of small jobs."""

    direct_us: float
    """The backend's `run`."""
    run_us: float
    submit_us: float
    """`submit` until the future has its result."""
    batch_ms: float
    """The backend's `run_batch`."""
    map_ms: float
    one_thread: float
    """Small jobs per second from one thread, one at a time."""
    threads: float
    """Small jobs per second from all threads together."""


def measure_executor(
    *, jobs: int = MAP_JOBS, small_jobs: int = 400, rounds: int = ROUNDS, budget: float = 0.5
) -> ExecutorMeasurement:
    """Measure small additions by each method, then many of 4 K elements, then small ones from
    several threads.
    """
    with GpuExecutor("vulkan") as executor:
        gpu = executor._devices[0].backend
        kernel = load("bls12_381_fq_add")
        a, b = (np.full((SMALL_ELEMENTS, 6), value, np.uint64) for value in (1, 2))
        if not (executor.submit(kernel, a, b).result() == a + b).all():
            raise AssertionError("1 + 2 is not 3")

        def submit() -> None:
            executor.submit(kernel, a, b).result()

        methods: list[Function] = [
            lambda: gpu.run(kernel, a, b),
            lambda: executor.run(kernel, a, b),
            submit,
        ]
        direct_us, run_us, submit_us = (
            time_function(method, budget=budget) * 1e6 for method in methods
        )
        x = np.ones((MAP_ELEMENTS, 6), np.uint64)

        def run_batch() -> None:
            gpu.run_batch(kernel, [(x, x)] * jobs)

        def run_map() -> None:
            for _ in executor.map(kernel, *[(x for _ in range(jobs)) for _ in range(2)]):
                pass

        batch, mapped = _time_fastest([run_batch, run_map], rounds)
        one, many = _time_fastest(
            [
                lambda: _call_in_threads(submit, small_jobs, 1),
                lambda: _call_in_threads(submit, small_jobs, THREADS),
            ],
            rounds,
        )
        return ExecutorMeasurement(
            direct_us=direct_us,
            run_us=run_us,
            submit_us=submit_us,
            batch_ms=batch * 1e3,
            map_ms=mapped * 1e3,
            one_thread=small_jobs / one,
            threads=THREADS * small_jobs / many,
        )


def check_targets(measured: ExecutorMeasurement, *, on_gpu: bool) -> list[Target]:
    run_added = measured.run_us - measured.direct_us
    submit_added = measured.submit_us - measured.direct_us
    of_batch = measured.batch_ms / measured.map_ms
    gain = measured.threads / measured.one_thread
    return [
        Target("run, added to a direct call", run_added, 20, "us", at_most=True),
        Target("submit and result, added to a direct call", submit_added, 60, "us", at_most=True),
        Target("map, throughput over the batch's", of_batch, 0.9, "x"),
        Target(f"{THREADS} threads, throughput over one's", gain, 3 if on_gpu else 1.8, "x"),
    ]


def _time_fastest(functions: list[Function], rounds: int) -> list[Sampled]:
    """Return the seconds of the fastest call of each function, in interleaved rounds."""
    taken = time_interleaved(functions, min_rounds=rounds)
    return [Sampled.fastest(times) for times in zip(*taken, strict=True)]


def _call_in_threads(function: Callable[[], None], calls: int, count: int) -> None:
    def call_repeatedly() -> None:
        for _ in range(calls):
            function()

    threads = [threading.Thread(target=call_repeatedly) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
