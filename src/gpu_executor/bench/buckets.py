"""Buckets: batches of like and of mixed sizes on WebGPU, against programs that keep less.

    no caches   shader module, layouts, pipeline, buffers and bind group for every task
    pipelines   one pipeline for all; buffers and bind groups for every task; one submission
    buckets     `WgpuExecutor.run_batch`, called before; once more with `private=False`

The first two are written as one would with wgpu-py's public calls, on a device of their own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

from gpu_executor.bench.batch import in_turns, medians
from gpu_executor.call import Array
from gpu_executor.kernels import load
from gpu_executor.settings import Settings
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.executor import WgpuExecutor

K = 1 << 10
ROW_SECONDS, LEAST_TURNS, MOST_TURNS = 4.0, 7, 300
SINGLE_ELEMENTS, SINGLE_SECONDS, SINGLE_TURNS = K, 3.0, 3_000
CALLS_BEFORE = 3
"""A size is known as one that comes again at its second call, and found at its third."""
MIXED_AIM, SCATTERED_AIM = 1.35, 1.25
PUBLIC_AIM, PRIVATE_AIM, TAIL_AIM = 0.95, 0.6, 1.5
WORK_GROUP = 128

PRELUDE = f"""
const work_group = {WORK_GROUP}u;
const per_invocation = 1u;
fn param(i: u32) -> u32 {{ return arrayLength(&result); }}
fn first_element(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {{
    return group.x * work_group + local;
}}
"""
"""What the kernel's text needs, in the plain program: buffers that fit say how many elements."""
KINDS = ("read-only-storage", "read-only-storage", "storage")
Job = tuple[Array, Array]
Program = tuple[Any, Any]
"""A pipeline and the layout of its bind groups."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A batch: the elements of its tasks."""

    name: str
    sizes: tuple[int, ...]
    aim: float | None = None
    """Over one pipeline for all."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between its quartiles."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(low, middle, high)


@dataclass(frozen=True, slots=True)
class Made:
    """What the executor made; nothing in steady state."""

    pipelines: int
    buffer_sets: int
    buffers: int

    @property
    def total(self) -> int:
        return self.pipelines + self.buffer_sets + self.buffers

    def __add__(self, other: Made) -> Made:
        return Made(
            self.pipelines + other.pipelines,
            self.buffer_sets + other.buffer_sets,
            self.buffers + other.buffers,
        )


NOTHING = Made(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Parts:
    """Where a batch of the middle way goes, in milliseconds; the kernel runs during the last."""

    making_ms: float
    """Buffers with the inputs in them, and bind groups."""
    submitting_ms: float
    reading_ms: float
    """Waiting for the device; for each task, a buffer to map, a copy, a submission."""


@dataclass(frozen=True, slots=True)
class Saved:
    """What each step saves of a batch, in milliseconds: medians of each turn's own differences."""

    one_pipeline_ms: float
    reuse_ms: float
    """Of buffers and bind groups, both ways waiting alike."""
    private_ms: float
    """By waiting in the private way."""
    beside_kernel_ms: float
    """All that the middle way takes beside the kernel: what the last two could save."""

    @classmethod
    def of(cls, turns: Sequence[Sequence[float]]) -> Saved:
        pairs = ((0, 1), (1, 3), (3, 2), (1, 4))
        return cls(*(1e3 * statistics.median(t[i] - t[j] for t in turns) for i, j in pairs))


@dataclass(frozen=True, slots=True)
class Row:
    """One batch, run in each way. Ratios are of each turn's own times."""

    name: str
    sizes: tuple[int, ...]
    turns: int
    no_caches_ms: float
    pipelines_ms: float
    buckets_ms: float
    public_ms: float
    """Buckets that wait as the other ways do, by wgpu-py's promises."""
    kernel_ms: float
    """Its dispatches alone, on buffers that are there: no way takes less with that text."""
    over_no_caches: Spread
    over_pipelines: Spread
    most: float
    """What that would be if a batch took no longer than the kernel alone."""
    aim: float | None
    saved: Saved
    submissions: int
    """Of a batch of the executor's."""
    parts: Parts
    made: Made


@dataclass(frozen=True, slots=True)
class Single:
    """One small task again and again, by an executor and by a plain program."""

    private: bool
    median_us: float
    p95_us: float
    plain_us: float
    plain_p95_us: float
    ratio: float
    """Of the medians: the executor's over the plain program's."""
    aim: float
    made: Made

    @property
    def tail(self) -> float:
        return self.p95_us / self.median_us

    @property
    def plain_tail(self) -> float:
        return self.plain_p95_us / self.plain_us


def _scattered(count: int, least: int, most: int) -> tuple[int, ...]:
    """As many below the geometric mean as above it, and the same every time."""
    draw = random.Random(100)
    return tuple(round(least * (most / least) ** draw.random()) for _ in range(count))


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


class PlainProgram:
    """Sums by wgpu-py alone."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device, self._usage = device.device, device.wgpu.BufferUsage
        self._queue = self._device.queue
        code = load("vector_add_u32").wgsl
        assert code is not None
        self._text = PRELUDE + code.text
        self._shared = self._compile()
        self.parts: list[tuple[float, float, float]] = []
        """Seconds of each call of `pipelines`: making, submitting, reading."""

    def no_caches(self, jobs: Sequence[Job]) -> list[Array]:
        """Everything anew for every task."""
        results = []
        for job in jobs:
            program = self._compile()
            output, group = self._buffers(program, job)
            self._submit(program, [(len(job[0]), group)])
            results.append(self._read(output))
        return results

    def pipelines(self, jobs: Sequence[Job]) -> list[Array]:
        """One pipeline, one encoder, one submission; then read one result after the other."""
        begun = perf_counter()
        made = [self._buffers(self._shared, job) for job in jobs]
        ready = perf_counter()
        counts = (len(a) for a, _ in jobs)
        groups = (group for _, group in made)
        self._submit(self._shared, list(zip(counts, groups, strict=True)))
        submitted = perf_counter()
        results = [self._read(output) for output, _ in made]
        self.parts.append((ready - begun, submitted - ready, perf_counter() - submitted))
        return results

    def kernel_alone(self, jobs: Sequence[Job]) -> Callable[[], None]:
        """The dispatches of a batch, with buffers that were made before."""
        made = [(len(job[0]), *self._buffers(self._shared, job)) for job in jobs]
        groups = [(count, group) for count, _, group in made]
        last = made[-1][1]

        def dispatch() -> None:
            self._submit(self._shared, groups)
            self._queue.read_buffer(last, 0, 4)  # when the device is done

        return dispatch

    def single(self, job: Job) -> Callable[[], Array]:
        """One task whose buffers were made before: write, dispatch, read."""
        inputs = [self._buffer(array.nbytes, "COPY_DST") for array in job]
        output = self._buffer(job[0].nbytes, "COPY_SRC")
        group = self._bind(self._shared, [*inputs, output])

        def add() -> Array:
            for buffer, array in zip(inputs, job, strict=True):
                self._queue.write_buffer(buffer, 0, array)
            self._submit(self._shared, [(len(job[0]), group)])
            return self._read(output)

        return add

    def _compile(self) -> Program:
        layout = self._device.create_bind_group_layout(
            entries=[
                {"binding": index, "visibility": "COMPUTE", "buffer": {"type": kind}}
                for index, kind in enumerate(KINDS)
            ]
        )
        pipeline = self._device.create_compute_pipeline(
            layout=self._device.create_pipeline_layout(bind_group_layouts=[layout]),
            compute={
                "module": self._device.create_shader_module(code=self._text),
                "entry_point": "main",
            },
        )
        return pipeline, layout

    def _buffer(self, nbytes: int, copies: str) -> Any:
        usage = self._usage.STORAGE | self._usage[copies]
        return self._device.create_buffer(size=nbytes, usage=usage)

    def _buffers(self, program: Program, job: Job) -> tuple[Any, Any]:
        """The output and the bind group of a task, with inputs that hold its arrays."""
        inputs = [
            self._device.create_buffer_with_data(data=array, usage=self._usage.STORAGE)
            for array in job
        ]
        output = self._buffer(job[0].nbytes, "COPY_SRC")
        return output, self._bind(program, [*inputs, output])

    def _bind(self, program: Program, buffers: Sequence[Any]) -> Any:
        entries = [
            {"binding": index, "resource": {"buffer": buffer}}
            for index, buffer in enumerate(buffers)
        ]
        return self._device.create_bind_group(layout=program[1], entries=entries)

    def _submit(self, program: Program, groups: Sequence[tuple[int, Any]]) -> None:
        encoder = self._device.create_command_encoder()
        compute_pass = encoder.begin_compute_pass()
        compute_pass.set_pipeline(program[0])
        for count, group in groups:
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(-(-count // WORK_GROUP))
        compute_pass.end()
        self._queue.submit([encoder.finish()])

    def _read(self, output: Any) -> Array:
        result: Array = np.frombuffer(self._queue.read_buffer(output), np.uint32)
        return result


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
    """A row for each batch, its ways and the kernel alone in turns."""
    kernel, plain, executors = load("vector_add_u32"), on.plain, (on.private, on.public)
    for scenario in scenarios:
        jobs = [_job(size, seed) for seed, size in enumerate(scenario.sizes)]
        ways = [
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
        turns = list(
            in_turns([*ways, plain.kernel_alone(jobs)], budget=budget, least=least, most=most)
        )
        made = sum(map(_grown, before, executors), NOTHING)
        parts = plain.parts[1:]  # the first did not count
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
    """A small task by the plain program and by each executor, in turns."""
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
    taken = list(in_turns(functions, budget=budget, least=20, most=turns))
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
