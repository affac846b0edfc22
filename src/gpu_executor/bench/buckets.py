"""Size buckets on WebGPU: batches of equal and of mixed sizes, compared with programs that reuse
fewer objects.

    no caches   shader module, layouts, pipeline, buffers and bind group for every task
    pipelines   one pipeline for all tasks; buffers and bind groups for every task; one submission
    buckets `WgpuExecutor.run_batch` after a warm-up; measured again with `private=False`

The first two are methods of `WebGpuBaseline`, which has a device of its own.

The programs are timed in interleaved rounds, so each round switches between devices. A discrete GPU
takes hundreds of microseconds for a switch: a single task took 540 us in rounds and 130 us by
itself. A real program with one device never switches. So in every round each function is called
once untimed right before its timed calls.
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

from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import compute_medians, compute_ratio, time_interleaved
from gpu_executor.bench.webgpu_baseline import AddOperands, WebGpuBaseline
from gpu_executor.calls.call import Array
from gpu_executor.kernels import load
from gpu_executor.settings import Settings
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.wgpu_executor import WgpuExecutor

K = 1 << 10
SIZE_MULTIPLE = 4
"""Sizes are multiples of this many elements: the kernel adds vectors of four elements, and the
baseline's buffers, which have exactly the size of the arrays, must hold whole vectors."""
ROW_SECONDS, MIN_ROUNDS, MAX_ROUNDS = 4.0, 5, 300
"""Rounds of a batch. In five rounds each of the five functions comes first once."""
BATCH_WARM_UP = 1
SINGLE_ELEMENTS, SINGLE_SECONDS, MIN_SINGLE_ROUNDS, MAX_SINGLE_ROUNDS = K, 3.0, 3, 300
SINGLE_WARM_UP, SINGLE_TIMED = 10, 50
"""Untimed and timed calls in a row: a small task is too short for warm-up calls of its own."""
CALLS_BEFORE = 3
"""Calls until a size is served from the caches: the second call marks the size as repeating, and
the third finds its buffers."""
MIXED_TARGET, SCATTERED_TARGET = 1.35, 1.25
PUBLIC_TARGET, PRIVATE_TARGET, TAIL_TARGET = 0.95, 0.6, 1.5


@dataclass(frozen=True, slots=True)
class Scenario:
    """A batch: the elements of its tasks."""

    name: str
    sizes: tuple[int, ...]
    target: float | None = None
    """The speed-up over `pipelines`."""


def _draw_sizes(count: int, least: int, most: int) -> tuple[int, ...]:
    """Draw log-uniform sizes with a fixed seed."""
    rng = random.Random(100)
    sizes = (least * (most / least) ** rng.random() for _ in range(count))
    return tuple(SIZE_MULTIPLE * round(size / SIZE_MULTIPLE) for size in sizes)


def _to_elements(*sizes: int) -> tuple[int, ...]:
    return tuple(size * K for size in sizes)


SCENARIOS = (
    Scenario("4 x 32 K", _to_elements(*[32] * 4)),
    Scenario("4 x 64 K", _to_elements(*[64] * 4)),
    Scenario("20/25/30/28 K", _to_elements(20, 25, 30, 28), MIXED_TARGET),
    Scenario("20/40/20/40 K", _to_elements(20, 40, 20, 40), MIXED_TARGET),
    Scenario("8 of 1-600 K", _to_elements(1, 17, 40, 100, 250, 600, 3, 33), MIXED_TARGET),
    Scenario("8 x 500 K", _to_elements(*[500] * 8)),
    Scenario("256/512 K x 2", _to_elements(256, 512, 256, 512), MIXED_TARGET),
    Scenario("100 of 1-200 K", _draw_sizes(100, K, 200 * K), SCATTERED_TARGET),
)


@dataclass(frozen=True, slots=True)
class Spread:
    """A ratio of medians, and the quartiles of the ratios within each round."""

    low: float
    ratio: float
    high: float

    @classmethod
    def of(cls, ratio: Sampled) -> Spread:
        low, _, high = statistics.quantiles(ratio.samples, n=4, method="inclusive")
        return cls(low, float(ratio), high)


@dataclass(frozen=True, slots=True)
class CreatedObjects:
    """Counts of the objects that an executor created; all are 0 in steady state."""

    pipelines: int
    buffer_sets: int
    buffers: int

    @property
    def total(self) -> int:
        return self.pipelines + self.buffer_sets + self.buffers

    def __add__(self, other: CreatedObjects) -> CreatedObjects:
        return CreatedObjects(
            self.pipelines + other.pipelines,
            self.buffer_sets + other.buffer_sets,
            self.buffers + other.buffers,
        )


NOTHING = CreatedObjects(0, 0, 0)


@dataclass(frozen=True, slots=True)
class BatchPhases:
    """The phases of a batch by `pipelines`, in milliseconds; the kernel runs during the last."""

    making_ms: float
    """Creating buffers that hold the inputs, and bind groups."""
    submitting_ms: float
    reading_ms: float
    """Waiting for the device, then reading each task's result with a mapped buffer, a copy and a
    submission."""


@dataclass(frozen=True, slots=True)
class Savings:
    """The milliseconds that each improvement saves in a batch: medians of the differences within
    each round.
    """

    one_pipeline_ms: float
    reuse_ms: float
    """Saved by reusing buffers and bind groups, on the public queue."""
    private_ms: float
    """Saved by using the native queue instead of the public queue."""
    beside_kernel_ms: float
    """The time of `pipelines` minus that of the kernel: the maximum that the last two improvements
    could save."""

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]]) -> Savings:
        pairs = ((0, 1), (1, 3), (3, 2), (1, 4))
        return cls(*(1e3 * statistics.median(t[i] - t[j] for t in rounds) for i, j in pairs))


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One batch, run by each program. Ratios compare times of the same round."""

    name: str
    sizes: tuple[int, ...]
    turns: int
    """The number of rounds."""
    no_caches_ms: float
    pipelines_ms: float
    buckets_ms: float
    public_ms: float
    """`buckets` on the public queue, which waits by wgpu-py's promises as the baseline does."""
    kernel_ms: float
    """The dispatches alone, on existing buffers: a lower bound for every program."""
    over_no_caches: Spread
    over_pipelines: Spread
    most: float
    """The value that `over_pipelines` would have if a batch took no longer than its kernel."""
    aim: float | None
    """The target of `over_pipelines`."""
    saved: Savings
    submissions: int
    """Submissions of one batch by the executor."""
    parts: BatchPhases
    made: CreatedObjects


@dataclass(frozen=True, slots=True)
class SingleTaskRow:
    """One small task, repeated, by an executor and by the baseline."""

    private: bool
    """The executor's queue: native, or public."""
    median_us: float
    p95_us: float
    plain_us: float
    plain_p95_us: float
    """Microseconds of the baseline."""
    ratio: float
    """The executor's median over the baseline's."""
    aim: float
    """The target of `ratio`."""
    made: CreatedObjects

    @property
    def tail(self) -> float:
        return self.p95_us / self.median_us

    @property
    def plain_tail(self) -> float:
        return self.plain_p95_us / self.plain_us


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """The adapter that everything runs on."""

    name: str
    kind: str
    backend: str
    wgpu: str
    """The version of wgpu-py."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dataclasses.asdict(self)


@dataclass(frozen=True, slots=True)
class BucketSetup:
    """The baseline and the executors, each with a device of its own."""

    adapter: AdapterInfo
    baseline: WebGpuBaseline
    private: WgpuExecutor
    public: WgpuExecutor


@contextlib.contextmanager
def open_setup() -> Iterator[BucketSetup]:
    """Open everything on the executors' default adapter, without caches on disk."""
    settings, device = Settings(), WebGpuDevice()
    with (
        contextlib.closing(device),
        WgpuExecutor(settings=settings) as private,
        WgpuExecutor(settings=settings, private=False) as public,
    ):
        adapter = AdapterInfo(device.name, device.kind, device.backend, device.wgpu.__version__)
        yield BucketSetup(adapter, WebGpuBaseline(device), private, public)


def measure_batches(
    setup: BucketSetup,
    scenarios: Sequence[Scenario] = SCENARIOS,
    *,
    budget: float = ROW_SECONDS,
    min_rounds: int = MIN_ROUNDS,
    max_rounds: int = MAX_ROUNDS,
) -> Iterator[BucketRow]:
    """Yield a row for each scenario, with the times of every program and of the kernel alone."""
    kernel, baseline = load("vector_add_u32"), setup.baseline
    executors = setup.private, setup.public
    for scenario in scenarios:
        tasks = [_draw_operands(size, seed) for seed, size in enumerate(scenario.sizes)]
        programs: list[Callable[[], list[Array]]] = [
            functools.partial(baseline.run_without_caches, tasks),
            functools.partial(baseline.run_with_pipeline, tasks),
            *(functools.partial(executor.run_batch, kernel, tasks) for executor in executors),
        ]
        for executor in executors:
            executor.prepare(kernel, scenario.sizes)  # returns when everything is compiled
            for _ in range(CALLS_BEFORE):
                submitted = executor.stats().submissions
                executor.run_batch(kernel, tasks)
        submissions = setup.public.stats().submissions - submitted
        baseline.phases.clear()
        before = [_count_created(executor) for executor in executors]
        functions: list[Callable[[], object]] = [*programs, baseline.prepare_kernel(tasks)]
        rounds = list(
            time_interleaved(
                functions,
                budget=budget,
                min_rounds=min_rounds,
                max_rounds=max_rounds,
                warm_up_calls=BATCH_WARM_UP,
            )
        )
        created = sum(map(_count_created_since, before, executors), NOTHING)
        # Skip the call before the first round and the warm-up calls of each round.
        phases = baseline.phases[1 + BATCH_WARM_UP :: 1 + BATCH_WARM_UP]
        for program in programs:
            _check(tasks, program())
        no_caches, pipelines, buckets, public, alone = (1e3 * s for s in compute_medians(rounds))
        yield BucketRow(
            name=scenario.name,
            sizes=scenario.sizes,
            turns=len(rounds),
            no_caches_ms=no_caches,
            pipelines_ms=pipelines,
            buckets_ms=buckets,
            public_ms=public,
            kernel_ms=alone,
            over_no_caches=Spread.of(compute_ratio(rounds, 0, 2)),
            over_pipelines=Spread.of(compute_ratio(rounds, 1, 2)),
            most=compute_ratio(rounds, 1, 4),
            aim=scenario.target,
            saved=Savings.of(rounds),
            submissions=submissions,
            parts=BatchPhases(*(1e3 * seconds for seconds in compute_medians(phases))),
            made=created,
        )


def measure_single_tasks(
    setup: BucketSetup, *, budget: float = SINGLE_SECONDS, max_rounds: int = MAX_SINGLE_ROUNDS
) -> list[SingleTaskRow]:
    """Measure a small task by the baseline and by each executor, with many calls in a row in each
    round.
    """
    kernel, task = load("vector_add_u32"), _draw_operands(SINGLE_ELEMENTS, 0)
    executors = setup.private, setup.public
    functions: list[Callable[[], Array]] = [
        setup.baseline.prepare_single(task),
        *(functools.partial(executor.run, kernel, *task) for executor in executors),
    ]
    for executor in executors:
        executor.prepare(kernel, [SINGLE_ELEMENTS])
    for function in functions * CALLS_BEFORE:
        _check([task], [function()])
    before = [_count_created(executor) for executor in executors]
    taken = list(
        time_interleaved(
            functions,
            budget=budget,
            min_rounds=MIN_SINGLE_ROUNDS,
            max_rounds=max_rounds,
            warm_up_calls=SINGLE_WARM_UP,
            timed_calls=SINGLE_TIMED,
        )
    )
    created = list(map(_count_created_since, before, executors))
    medians = [1e6 * seconds for seconds in compute_medians(taken)]
    p95s = [1e6 * _compute_p95(times) for times in zip(*taken, strict=True)]
    return [
        SingleTaskRow(
            private=private,
            median_us=medians[index],
            p95_us=p95s[index],
            plain_us=medians[0],
            plain_p95_us=p95s[0],
            ratio=medians[index] / medians[0],
            aim=PRIVATE_TARGET if private else PUBLIC_TARGET,
            made=created[index - 1],
        )
        for index, private in ((1, True), (2, False))
    ]


def _draw_operands(count: int, seed: int) -> AddOperands:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    return a, b


def _check(tasks: Sequence[AddOperands], results: Sequence[Array]) -> None:
    for (a, b), result in zip(tasks, results, strict=True):
        if not np.array_equal(result, a + b):
            raise AssertionError(f"wrong sums of {len(a):,} elements")


def _count_created(executor: WgpuExecutor) -> CreatedObjects:
    stats = executor.stats()
    return CreatedObjects(stats.pipelines, stats.buffer_sets, stats.pool.misses)


def _count_created_since(before: CreatedObjects, executor: WgpuExecutor) -> CreatedObjects:
    after = _count_created(executor)
    return CreatedObjects(
        after.pipelines - before.pipelines,
        after.buffer_sets - before.buffer_sets,
        after.buffers - before.buffers,
    )


def _compute_p95(times: Sequence[float]) -> float:
    return statistics.quantiles(times, n=20, method="inclusive")[-1]
