"""Batches in three modes (sequential, pipelined, as planned), and the host time of submitting a
chunk."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from gpu_executor.bench.inputs import check_sums, tile_elements
from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import (
    TimingBudget,
    compute_medians,
    compute_ratio,
    time_interleaved,
    warm_up_device,
)
from gpu_executor.calls.call import Array, Call
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernels import load
from gpu_executor.plan import CallPlan, ElementRange, QueueUse, RunOptions
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.settings import Settings
from gpu_executor.telemetry.spans import Span
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.slot_buffers import SlotLayout

SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20)
JOBS = (2, 3, 4, 8, 16)
MODES = (False, True, None)
"""The argument `pipelined`: sequential, pipelined, as planned."""
MAX_CPU_ELEMENTS = 1 << 20
"""The largest number of elements in a batch on a software device, unless all sizes are
requested."""
ROW_SECONDS = 2.0
WARM_UP = TimingBudget(warm_up=0.5)
MIN_ROUNDS, MAX_ROUNDS = 9, 300

ORIGINAL_SPEED_UPS = {
    1 << 14: {2: 1.13, 3: 1.64, 4: 1.79},
    1 << 16: {2: 0.93, 3: 1.40, 4: 1.48},
    1 << 18: {2: 0.92, 3: 1.07, 4: 1.20},
}
"""Speed-ups of pipelined over sequential batches in the Rust original, by elements and jobs."""

SMALL_CHUNK, SMALL_CHUNKS = 64, 4
HOT_PATH_ROUNDS = 1_000
HOT_PATH_TARGET_US = 30.0
PLAN_TARGET = 0.95
TIMELINE_JOBS, TIMELINE_RUNS = 8, 6
GPU_TIMELINE_ELEMENTS, CPU_TIMELINE_ELEMENTS = 1 << 18, 1 << 14
"""The batch whose timelines are recorded: long enough to see its stages, few enough to read."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """Batches of `jobs` jobs of `elements` elements each, in the three modes.

    Ratios are those of the median times; their samples are the ratios within each
    round. A slow phase that covers half of the rounds changes a ratio of medians, and shows as a
    wide spread of these samples.
    """

    elements: int
    jobs: int
    arrays: str
    """`plain` arrays and new results, or `mapped` arrays and results in mapped arrays."""
    sequential_ms: float
    pipelined_ms: float
    plan_ms: float
    job_ms: float
    """Milliseconds per job of the pipelined batch."""
    speed_up: float
    """The speed-up of pipelined over sequential."""
    of_best: float
    """The time of the faster mode over the time as planned: 1 if the plan chose that mode."""
    seed_speed_up: float | None
    """`speed_up` of the Rust original, if it was measured."""


@dataclass(frozen=True, slots=True)
class HotPath:
    """The host time of one small chunk, already recorded, on mapped arrays without host copies."""

    queues: QueueUse
    submissions: int
    start_us: float
    """Microseconds until everything is submitted."""
    finish_us: float
    """Microseconds after the device has finished: detecting that, and reading the kernel's status
    word."""
    chunk_us: float
    """The sum of both."""


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A stage of a chunk; times are microseconds since the batch began."""

    track: str
    """The device's queue or the host thread."""
    stage: str
    chunk: int
    begin_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class BatchTimeline:
    """The stages of one batch as the profiler recorded them."""

    mode: str
    """`sequential` or `pipelined`."""
    elements: int
    jobs: int
    spans: list[TimelineSpan]


def choose_sizes(device: DeviceInfo, *, all_sizes: bool = False) -> list[tuple[int, int]]:
    """Return the elements and jobs of every batch to measure; only the smaller batches for a
    software device.
    """
    most = MAX_CPU_ELEMENTS if device.kind == "cpu" and not all_sizes else SIZES[-1] * JOBS[-1]
    return [(size, jobs) for size in SIZES for jobs in JOBS if size * jobs <= most]


def measure_batches(
    gpu: PersistentVulkanBackend,
    sizes: Sequence[tuple[int, int]],
    seconds: float,
    min_rounds: int = MIN_ROUNDS,
) -> Iterator[BatchRow]:
    """Yield two rows for each pair of elements and jobs: with plain arrays, then with mapped
    arrays. The sums of every batch are checked before they are timed.
    """
    _warm_up(gpu)
    for size in sorted({size for size, _ in sizes}):
        counts = [jobs for other, jobs in sizes if other == size]
        yield from _measure_size(gpu, size, counts, seconds, min_rounds)
        gpu.trim()


def record_timelines(device: DeviceInfo) -> list[BatchTimeline]:
    """Profile the same batch sequentially and pipelined: of several runs, the one of median
    length. Every job is one chunk, whatever plans would choose, so that its stages can be followed.
    """
    kernel, on_gpu = load("bls12_381_fq_add"), device.kind != "cpu"
    elements = GPU_TIMELINE_ELEMENTS if on_gpu else CPU_TIMELINE_ELEMENTS
    jobs = [
        (tile_elements(BLS12_381_FQ, elements, 1), tile_elements(BLS12_381_FQ, elements, 2))
        for _ in range(TIMELINE_JOBS)
    ]
    timelines = []
    unsplit = dataclasses.replace(Settings.from_environment(), stream_chunk_elems=elements)
    with PersistentVulkanBackend(settings=unsplit) as gpu:
        if on_gpu:
            _warm_up(gpu)
        for mode, pipelined in (("sequential", False), ("pipelined", True)):
            profiles = []
            for _ in range(TIMELINE_RUNS):
                with gpu.profile() as profile:
                    results = gpu.run_batch(kernel, jobs, pipelined=pipelined, device_local=True)
                check_sums(mode, *jobs[-1], results[-1])
                profiles.append(profile.spans)
            ordered = sorted(profiles[1:], key=_measure_length)  # the first run allocates
            spans = ordered[len(ordered) // 2]
            timelines.append(BatchTimeline(mode, elements, TIMELINE_JOBS, convert_spans(spans)))
    return timelines


def _measure_length(spans: Sequence[Span]) -> int:
    return max(span.end_ns for span in spans) - min(span.begin_ns for span in spans)


def convert_spans(spans: Sequence[Span]) -> list[TimelineSpan]:
    """The spans of a profile on the clock of their batch; chunks are numbered from 0."""
    first = min(span.begin_ns for span in spans)
    chunks = {chunk: number for number, chunk in enumerate(sorted({s.chunk for s in spans}))}
    return [
        TimelineSpan(
            span.track,
            span.stage,
            chunks[span.chunk],
            (span.begin_ns - first) / 1e3,
            (span.end_ns - first) / 1e3,
        )
        for span in sorted(spans, key=lambda span: span.begin_ns)
    ]


def measure_hot_path(gpu: PersistentVulkanBackend) -> list[HotPath]:
    """Measure the host time of a chunk on one queue, and on three if the device has transfer
    queues.
    """
    session = gpu._session  # uses the backend's internals: a single slot without a ring
    split = session.resources.upload is not None
    uses: list[QueueUse] = ["one", "split"] if split else ["one"]
    return [_measure_queues(session, queues) for queues in uses]


def _warm_up(gpu: PersistentVulkanBackend) -> None:
    """Run kernels until the GPU reaches its full clock: an idle GPU runs at a fraction of it."""
    kernel, a = load("bls12_381_fq_add"), gpu.to_device(tile_elements(BLS12_381_FQ, SIZES[-1], 0))
    warm_up_device(gpu, lambda: gpu.run(kernel, a, a, keep=True), WARM_UP)


def _measure_size(
    gpu: PersistentVulkanBackend, size: int, counts: list[int], seconds: float, min_rounds: int
) -> Iterator[BatchRow]:
    plain = [
        (tile_elements(BLS12_381_FQ, size, 2 * job), tile_elements(BLS12_381_FQ, size, 2 * job + 1))
        for job in range(max(counts))
    ]
    for count in counts:
        yield _measure_batch(gpu, "plain", plain[:count], None, seconds, min_rounds)
    # Mapped arrays are allocated last: the memory they hold could change how results of plain
    # arrays are allocated.
    mapped = [(gpu.asarray(a), gpu.asarray(b)) for a, b in plain]
    results = [gpu.empty(a.shape, a.dtype) for a, _ in plain]
    for count in counts:
        yield _measure_batch(gpu, "mapped", mapped[:count], results[:count], seconds, min_rounds)


def _measure_batch(
    gpu: PersistentVulkanBackend,
    arrays: str,
    jobs: list[tuple[Array, Array]],
    results: list[Array] | None,
    seconds: float,
    min_rounds: int,
) -> BatchRow:
    kernel = load("bls12_381_fq_add")

    def make_run(pipelined: bool | None) -> Callable[[], list[Any]]:
        return lambda: gpu.run_batch(kernel, jobs, out=results, pipelined=pipelined)

    runs = [make_run(pipelined) for pipelined in MODES]
    for run in runs:
        for (a, b), result in zip(jobs, run(), strict=True):
            check_sums(f"{arrays} arrays", a, b, result)
    rounds = list(
        time_interleaved(
            runs,
            budget=seconds,
            min_rounds=min_rounds,
            max_rounds=MAX_ROUNDS,
        )
    )
    sequential, pipelined, plan = compute_medians(rounds)
    size, count = len(jobs[0][0]), len(jobs)
    return BatchRow(
        elements=size,
        jobs=count,
        arrays=arrays,
        sequential_ms=sequential * 1e3,
        pipelined_ms=pipelined * 1e3,
        plan_ms=plan * 1e3,
        job_ms=pipelined / count * 1e3,
        speed_up=compute_ratio(rounds, 0, 1),
        of_best=min(compute_ratio(rounds, mode, 2) for mode in (0, 1)),
        seed_speed_up=ORIGINAL_SPEED_UPS.get(size, {}).get(count),
    )


def _measure_queues(session: Session, queues: QueueUse) -> HotPath:
    call, plan = _plan_small_chunks(session)
    plan, grid = dataclasses.replace(plan, queues=queues), (plan.groups(SMALL_CHUNK), 1, 1)
    slot = Slot(session.resources, SlotLayout.of(plan, call.signature))
    with contextlib.closing(slot):
        chunks = [ElementRange(n * SMALL_CHUNK, SMALL_CHUNK) for n in range(SMALL_CHUNKS)]
        for chunk in chunks:  # records the commands, which starting a chunk finds then
            slot.start(call, chunk, grid)
            slot.finish(call)
        starts, finishes, submissions = list[int](), list[int](), 0
        for _ in range(HOT_PATH_ROUNDS):
            for chunk in chunks:
                begun = perf_counter_ns()
                slot.start(call, chunk, grid)
                starts.append(perf_counter_ns() - begun)
                submissions = slot._submitted
                while not slot.is_done():
                    pass
                begun = perf_counter_ns()
                slot.finish(call)
                finishes.append(perf_counter_ns() - begun)
    start, finish = Sampled.median(starts) / 1e3, Sampled.median(finishes) / 1e3
    return HotPath(queues, submissions, start, finish, start + finish)


def _plan_small_chunks(session: Session) -> tuple[Call, CallPlan]:
    """Return an addition of mapped arrays, and the plan of a pipelined batch whose jobs are chunks
    of it.
    """
    kernel, count = load("bls12_381_fq_add"), SMALL_CHUNK * SMALL_CHUNKS
    arrays = [
        session.mapped.empty((count, *BLS12_381_FQ.element_shape), "uint64") for _ in range(3)
    ]
    for seed, array in enumerate(arrays[:2]):
        array[...] = tile_elements(BLS12_381_FQ, count, seed)
    call = session.call_preparer.signatures.get(kernel, arrays[:2]).make_call(arrays[:2])
    call.use_outputs(arrays[2])
    call.buffer_ranges = tuple(session.mapped.find(array) for array in arrays)
    parts = [array[:SMALL_CHUNK] for array in arrays[:2]]
    job = session.call_preparer.signatures.get(kernel, parts).make_call(parts)
    # The device-local path with one queue and with three, so that only the number of queues
    # differs.
    options = RunOptions(device_local=True, pipelined=True)
    return call, session.prepare_batch([job] * SMALL_CHUNKS, options).plan
