"""Buckets: batches of like and of mixed sizes on WebGPU, against programs that keep less.

    no caches   shader module, layouts, pipeline, buffers and bind group for every task
    pipelines   one pipeline for all; buffers and bind groups for every task; one submission
    buckets     `WgpuExecutor.run_batch`, called before; once more with `private=False`

The first two are the plain program's (`plain_webgpu.py`), on a device of its own.

Each way is called in turns with the others, and each device finds that another was busy last. A
discrete GPU takes hundreds of microseconds to come back to it (a single task, 540 us in turns,
takes 130 by itself), which no way can help and no program with one device pays. So in every turn
a way has a run-up: calls right before those that are timed, of the same function, not counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.bench.batch import in_turns, medians
from gpu_executor.bench.bucket_figures import NOTHING, Made, Parts, Row, Saved, Single, Spread
from gpu_executor.bench.plain_webgpu import Job, PlainProgram
from gpu_executor.call import Array
from gpu_executor.kernels import load
from gpu_executor.settings import Settings
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.executor import WgpuExecutor

K = 1 << 10
WHOLE = 4
"""Sizes are multiples of it. The kernel adds four elements at once, and the plain program's
buffers, which fit exactly, have to end where such a vector does."""
ROW_SECONDS, LEAST_TURNS, MOST_TURNS = 4.0, 5, 300
"""With the run-up. In five turns each of the five functions is the first once."""
ROW_RUN_UP = 1
SINGLE_ELEMENTS, SINGLE_SECONDS, LEAST_SINGLE_TURNS, SINGLE_TURNS = K, 3.0, 3, 300
SINGLE_RUN_UP, SINGLE_COUNTED = 10, 50
"""Calls in a row: small tasks are too short for a run-up each."""
CALLS_BEFORE = 3
"""A size is known as one that comes again at its second call, and found at its third."""
MIXED_AIM, SCATTERED_AIM = 1.35, 1.25
PUBLIC_AIM, PRIVATE_AIM, TAIL_AIM = 0.95, 0.6, 1.5


@dataclass(frozen=True, slots=True)
class Scenario:
    """A batch: the elements of its tasks."""

    name: str
    sizes: tuple[int, ...]
    aim: float | None = None
    """Over one pipeline for all."""


def _scattered(count: int, least: int, most: int) -> tuple[int, ...]:
    """As many below the geometric mean as above it, and the same every time."""
    draw = random.Random(100)
    sizes = (least * (most / least) ** draw.random() for _ in range(count))
    return tuple(WHOLE * round(size / WHOLE) for size in sizes)


def _in_k(*sizes: int) -> tuple[int, ...]:
    return tuple(size * K for size in sizes)


SCENARIOS = (
    Scenario("4 x 32 K", _in_k(*[32] * 4)),
    Scenario("4 x 64 K", _in_k(*[64] * 4)),
    Scenario("20/25/30/28 K", _in_k(20, 25, 30, 28), MIXED_AIM),
    Scenario("20/40/20/40 K", _in_k(20, 40, 20, 40), MIXED_AIM),
    Scenario("8 of 1-600 K", _in_k(1, 17, 40, 100, 250, 600, 3, 33), MIXED_AIM),
    Scenario("8 x 500 K", _in_k(*[500] * 8)),
    Scenario("256/512 K x 2", _in_k(256, 512, 256, 512), MIXED_AIM),
    Scenario("100 of 1-200 K", _scattered(100, K, 200 * K), SCATTERED_AIM),
)


@dataclass(frozen=True, slots=True)
class Adapter:
    """What all of it runs on."""

    name: str
    kind: str
    backend: str
    wgpu: str
    """The version of wgpu-py."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class Opened:
    """The executors and the plain program, each with a device of its own."""

    adapter: Adapter
    plain: PlainProgram
    private: WgpuExecutor
    public: WgpuExecutor


@contextlib.contextmanager
def opened() -> Iterator[Opened]:
    """All on the adapter that executors take; nothing is kept on disk."""
    settings, device = Settings(), WebGpuDevice()
    with (
        contextlib.closing(device),
        WgpuExecutor(settings=settings) as private,
        WgpuExecutor(settings=settings, private=False) as public,
    ):
        adapter = Adapter(device.name, device.kind, device.backend, device.wgpu.__version__)
        yield Opened(adapter, PlainProgram(device), private, public)


def rows(
    on: Opened,
    scenarios: Sequence[Scenario] = SCENARIOS,
    *,
    budget: float = ROW_SECONDS,
    least: int = LEAST_TURNS,
    most: int = MOST_TURNS,
) -> Iterator[Row]:
    """A row for each batch, its ways and the kernel alone in turns, each after a run-up."""
    kernel, plain, executors = load("vector_add_u32"), on.plain, (on.private, on.public)
    for scenario in scenarios:
        jobs = [_job(size, seed) for seed, size in enumerate(scenario.sizes)]
        ways: list[Callable[[], list[Array]]] = [
            functools.partial(plain.no_caches, jobs),
            functools.partial(plain.pipelines, jobs),
            *(functools.partial(executor.run_batch, kernel, jobs) for executor in executors),
        ]
        for executor in executors:
            executor.warm_up(kernel, scenario.sizes)  # returns when all is compiled
            for _ in range(CALLS_BEFORE):
                submitted = executor.stats().submissions
                executor.run_batch(kernel, jobs)
        submissions = on.public.stats().submissions - submitted
        plain.parts.clear()
        before = [_made(executor) for executor in executors]
        functions: list[Callable[[], object]] = [*ways, plain.kernel_alone(jobs)]
        turns = list(in_turns(functions, budget=budget, least=least, most=most, run_up=ROW_RUN_UP))
        made = sum(map(_grown, before, executors), NOTHING)
        # Without those of the call before all turns, and of the run-up in each.
        parts = plain.parts[1 + ROW_RUN_UP :: 1 + ROW_RUN_UP]
        for way in ways:
            _check(jobs, way())
        no_caches, pipelines, buckets, public, alone = (1e3 * each for each in medians(turns))
        yield Row(
            name=scenario.name,
            sizes=scenario.sizes,
            turns=len(turns),
            no_caches_ms=no_caches,
            pipelines_ms=pipelines,
            buckets_ms=buckets,
            public_ms=public,
            kernel_ms=alone,
            over_no_caches=Spread.of([turn[0] / turn[2] for turn in turns]),
            over_pipelines=Spread.of([turn[1] / turn[2] for turn in turns]),
            most=statistics.median(turn[1] / turn[4] for turn in turns),
            aim=scenario.aim,
            saved=Saved.of(turns),
            submissions=submissions,
            parts=Parts(*(1e3 * seconds for seconds in medians(map(list, parts)))),
            made=made,
        )


def singles(
    on: Opened, *, budget: float = SINGLE_SECONDS, turns: int = SINGLE_TURNS
) -> list[Single]:
    """A small task by the plain program and by each executor: calls in a row, in turns."""
    kernel, job = load("vector_add_u32"), _job(SINGLE_ELEMENTS, 0)
    executors = on.private, on.public
    functions: list[Callable[[], Array]] = [
        on.plain.single(job),
        *(functools.partial(executor.run, kernel, *job) for executor in executors),
    ]
    for executor in executors:
        executor.warm_up(kernel, [SINGLE_ELEMENTS])
    for function in functions * CALLS_BEFORE:
        _check([job], [function()])
    before = [_made(executor) for executor in executors]
    taken = list(
        in_turns(
            functions,
            budget=budget,
            least=LEAST_SINGLE_TURNS,
            most=turns,
            run_up=SINGLE_RUN_UP,
            counted=SINGLE_COUNTED,
        )
    )
    grown = list(map(_grown, before, executors))
    middle = [1e6 * seconds for seconds in medians(taken)]
    late = [1e6 * _p95(times) for times in zip(*taken, strict=True)]
    return [
        Single(
            private=private,
            median_us=middle[index],
            p95_us=late[index],
            plain_us=middle[0],
            plain_p95_us=late[0],
            ratio=middle[index] / middle[0],
            aim=PRIVATE_AIM if private else PUBLIC_AIM,
            made=grown[index - 1],
        )
        for index, private in ((1, True), (2, False))
    ]


def _job(count: int, seed: int) -> Job:
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    return a, b


def _check(jobs: Sequence[Job], results: Sequence[Array]) -> None:
    for (a, b), result in zip(jobs, results, strict=True):
        if not np.array_equal(result, a + b):
            raise AssertionError(f"wrong sums of {len(a):,} elements")


def _made(executor: WgpuExecutor) -> Made:
    stats = executor.stats()
    return Made(stats.pipelines, stats.buffer_sets, stats.pool.misses)


def _grown(before: Made, executor: WgpuExecutor) -> Made:
    after = _made(executor)
    return Made(
        after.pipelines - before.pipelines,
        after.buffer_sets - before.buffer_sets,
        after.buffers - before.buffers,
    )


def _p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1]
