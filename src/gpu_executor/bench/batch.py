"""Batches: one after the other, overlapped, left to the plan; and what submitting a piece costs."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

from gpu_executor.bench.samples import elements
from gpu_executor.call import Array, Call
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernels import load
from gpu_executor.plan import Piece, Plan, QueueUse, RunOptions
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.mapped_arrays import of_piece
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot import Slot, SlotLayout

SIZES = (1 << 14, 1 << 16, 1 << 18, 1 << 20)
JOBS = (2, 3, 4, 8, 16)
MODES = (False, True, None)
"""What `pipelined` is: one after the other, overlapped, left to the plan."""
MOST_ON_A_CPU = 1 << 20
"""Elements of a batch on a software device, unless all sizes are asked for."""
ROW_SECONDS = 2.0
WARM_UP_SECONDS = 0.5
LEAST_TURNS, MOST_TURNS = 9, 300

SEED_SPEED_UPS = {
    1 << 14: {2: 1.13, 3: 1.64, 4: 1.79},
    1 << 16: {2: 0.93, 3: 1.40, 4: 1.48},
    1 << 18: {2: 0.92, 3: 1.07, 4: 1.20},
}
"""Of pipelined batches over sequential ones, by elements and jobs, in the Rust original."""

SMALL_PIECE, SMALL_PIECES = 64, 4
HOT_PATH_ROUNDS = 1_000
HOT_PATH_AIM_US = 30.0
PLAN_AIM = 0.95


@dataclass(frozen=True, slots=True)
class Row:
    """Batches of so many jobs of so many elements each, in the three modes.

    Ratios are medians of each turn's own: a spell that makes half of the turns slow leaves them as
    they are, and the ratio of two medians not.
    """

    elements: int
    jobs: int
    arrays: str
    """`plain` ones with new results, or `mapped` ones with results in mapped arrays."""
    sequential_ms: float
    pipelined_ms: float
    plan_ms: float
    job_ms: float
    """One job of a pipelined batch."""
    speed_up: float
    """Of pipelined over sequential."""
    of_best: float
    """The better of the two over what was left to the plan: 1 where it chose that one."""
    seed_speed_up: float | None


@dataclass(frozen=True, slots=True)
class HotPath:
    """What one small piece costs the host when its commands are known and nothing is copied."""

    queues: QueueUse
    submissions: int
    start_us: float
    """Until all is submitted."""
    finish_us: float
    """After the device is done: seeing that it is, and what the kernel reported."""
    piece_us: float
    """Both."""


def sizes_for(device: DeviceInfo, *, all_sizes: bool = False) -> list[tuple[int, int]]:
    """Elements and jobs of every batch to measure; a software device gets the smaller ones."""
    most = MOST_ON_A_CPU if device.kind == "cpu" and not all_sizes else SIZES[-1] * JOBS[-1]
    return [(size, jobs) for size in SIZES for jobs in JOBS if size * jobs <= most]


def rows(gpu: PersistentVulkanBackend, sizes: Sequence[tuple[int, int]]) -> Iterator[Row]:
    """Two rows for each of the sizes: those of plain arrays, then those of mapped ones."""
    _warm_up(gpu)
    for size in sorted({size for size, _ in sizes}):
        yield from _rows_of_size(gpu, size, [jobs for other, jobs in sizes if other == size])
        gpu.trim()


def hot_path(gpu: PersistentVulkanBackend) -> list[HotPath]:
    """The cost of a piece on one queue and, where the device has queues that copy, on three."""
    session = gpu._session  # measured from within: a slot by itself, without a ring around it
    split = session.resources.upload is not None
    uses: list[QueueUse] = ["one", "split"] if split else ["one"]
    return [_hot_path(session, queues) for queues in uses]


def in_turns(
    functions: Sequence[Callable[[], object]],
    *,
    budget: float,
    least: int,
    most: int,
    run_up: int = 0,
    counted: int = 1,
) -> Iterator[list[float]]:
    """The seconds of each, turn after turn, so that a slow spell of the machine hits all.

    Every turn begins with another of them. Each is called once before it counts; then there are
    `most` turns, or as many as the budget in seconds allows, `least` anyway.

    A turn calls a function `run_up` times without counting, then `counted` times, all in a row:
    for functions that pay when another has run before them. It gives `counted` lists of seconds.
    """
    for function in functions:
        function()
    order = deque(range(len(functions)))
    end = time.perf_counter() + budget
    for turn in range(most):
        if turn >= least and time.perf_counter() > end:
            return
        taken = [[0.0] * len(functions) for _ in range(counted)]
        for index in order:
            for _ in range(run_up):
                functions[index]()
            for seconds in taken:
                begun = time.perf_counter()
                functions[index]()
                seconds[index] = time.perf_counter() - begun
        order.rotate(-1)
        yield from taken


def _warm_up(gpu: PersistentVulkanBackend) -> None:
    """A GPU that idled runs at a fraction of its clock."""
    kernel, a = load("bls12_381_fq_add"), gpu.to_device(elements(BLS12_381_FQ, SIZES[-1], 0))
    end = time.perf_counter() + WARM_UP_SECONDS
    while time.perf_counter() < end:
        gpu.run(kernel, a, a, keep=True)


def medians(turns: Iterable[list[float]]) -> list[float]:
    """The median seconds of each function over the turns."""
    return [statistics.median(times) for times in zip(*turns, strict=True)]


def _rows_of_size(gpu: PersistentVulkanBackend, size: int, counts: list[int]) -> Iterator[Row]:
    plain = [
        (elements(BLS12_381_FQ, size, 2 * job), elements(BLS12_381_FQ, size, 2 * job + 1))
        for job in range(max(counts))
    ]
    for count in counts:
        yield _row(gpu, "plain", plain[:count], None)
    # Not before: the memory that these hold could change how results of plain arrays are made.
    mapped = [(gpu.asarray(a), gpu.asarray(b)) for a, b in plain]
    results = [gpu.empty(a.shape, a.dtype) for a, _ in plain]
    for count in counts:
        yield _row(gpu, "mapped", mapped[:count], results[:count])


def _row(
    gpu: PersistentVulkanBackend,
    arrays: str,
    jobs: list[tuple[Array, Array]],
    results: list[Array] | None,
) -> Row:
    kernel = load("bls12_381_fq_add")

    def batch(pipelined: bool | None) -> Callable[[], list[Any]]:
        return lambda: gpu.run_batch(kernel, jobs, out=results, pipelined=pipelined)

    modes = [batch(pipelined) for pipelined in MODES]
    turns = list(in_turns(modes, budget=ROW_SECONDS, least=LEAST_TURNS, most=MOST_TURNS))
    sequential, pipelined, plan = medians(turns)
    over_plan = [statistics.median(turn[mode] / turn[2] for turn in turns) for mode in (0, 1)]
    size, count = len(jobs[0][0]), len(jobs)
    return Row(
        elements=size,
        jobs=count,
        arrays=arrays,
        sequential_ms=sequential * 1e3,
        pipelined_ms=pipelined * 1e3,
        plan_ms=plan * 1e3,
        job_ms=pipelined / count * 1e3,
        speed_up=statistics.median(turn[0] / turn[1] for turn in turns),
        of_best=min(over_plan),
        seed_speed_up=SEED_SPEED_UPS.get(size, {}).get(count),
    )


def _hot_path(session: Session, queues: QueueUse) -> HotPath:
    call, plan = _small_pieces(session)
    plan, groups = dataclasses.replace(plan, queues=queues), plan.groups(SMALL_PIECE)
    slot = Slot(session.resources, SlotLayout.of(plan, call.signature))
    with contextlib.closing(slot):
        pieces = [Piece(n * SMALL_PIECE, SMALL_PIECE) for n in range(SMALL_PIECES)]
        # Recorded here, so that starting a piece finds its commands.
        recordings = [
            slot.recording(piece.count, groups, of_piece(call.places, call.signature, piece))
            for piece in pieces
        ]
        starts, finishes = [], []
        for _ in range(HOT_PATH_ROUNDS):
            for piece, recording in zip(pieces, recordings, strict=True):
                begun = perf_counter_ns()
                slot.start(call, piece, groups)
                starts.append(perf_counter_ns() - begun)
                timeline, submission = recording.submissions[-1]
                timeline.wait(submission)
                begun = perf_counter_ns()
                slot.finish(call)
                finishes.append(perf_counter_ns() - begun)
    start, finish = statistics.median(starts) / 1e3, statistics.median(finishes) / 1e3
    return HotPath(queues, len(recordings[0].submissions), start, finish, start + finish)


def _small_pieces(session: Session) -> tuple[Call, Plan]:
    """An addition of mapped arrays, and the plan of a pipelined batch with its pieces as jobs."""
    kernel, count = load("bls12_381_fq_add"), SMALL_PIECE * SMALL_PIECES
    arrays = [
        session.mapped.empty((count, *BLS12_381_FQ.element_shape), "uint64") for _ in range(3)
    ]
    for seed, array in enumerate(arrays[:2]):
        array[...] = elements(BLS12_381_FQ, count, seed)
    call = session.call_preparer.signatures.signature(kernel, arrays[:2]).call(arrays[:2])
    call.use_outputs(arrays[2])
    call.places = tuple(session.mapped.find(array) for array in arrays)
    parts = [array[:SMALL_PIECE] for array in arrays[:2]]
    job = session.call_preparer.signatures.signature(kernel, parts).call(parts)
    # Through device memory for one queue and for three, so that only their number differs.
    options = RunOptions(device_local=True, pipelined=True)
    return call, session.prepare_batch([job] * SMALL_PIECES, options).plan
