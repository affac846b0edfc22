"""Streams: additions of many elements compared with the bandwidth of the bus, measured in the same
run.

The limit is the rate of copies alone: the same bytes in and out as the additions, in both
directions at once, without a kernel between them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench.inputs import check_sums, tile_elements
from gpu_executor.bench.timing import compute_medians, compute_ratio, time_interleaved
from gpu_executor.calls.call import Array
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.steps.bound_steps import Copy
from gpu_executor.vulkan.calibration import IN_FLIGHT, BandwidthProbe, open_probe, run_probes
from gpu_executor.vulkan.mapped_arrays import EXTENSION
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.timeline import Timeline

GPU_ELEMENTS, CPU_ELEMENTS = 1 << 24, 1 << 20
ROUNDS = 15
MAPPED_TARGET, PLAIN_TARGET = 0.95, 150e6
"""Targets: the share of the limit for mapped arrays on a discrete GPU; additions per second for
plain arrays on an NVIDIA H200."""

ELEMENT_BYTES = BLS12_381_FQ.element_bytes
DIRECTIONS = (("both at once", 2, 1), ("in alone", 2, 0), ("out alone", 0, 1))
"""The copies without a kernel: a name, the arrays copied to the device, and the arrays copied
back."""
Rounds = Iterable[list[float]]


@dataclass(frozen=True, slots=True)
class CopyRate:
    """Copies without a kernel; 0 bytes for a direction that is not used."""

    direction: str
    elements_per_second: float
    bytes_in_per_second: float
    bytes_out_per_second: float


@dataclass(frozen=True, slots=True)
class StreamRate:
    """Additions of arrays of one kind."""

    arrays: str
    milliseconds: float
    additions_per_second: float
    of_limit: float
    """The rate relative to that of copies in both directions at once."""


@dataclass(frozen=True, slots=True)
class StreamMeasurement:
    """The measurements of one run."""

    elements: int
    chunk: int
    """Elements of one copy: the chunk size of the plan."""
    copies: list[CopyRate]
    streams: list[StreamRate]


@dataclass(frozen=True, slots=True)
class ArrayKind:
    """Inputs and output of one kind; if `out` is None, each call returns a new result."""

    name: str
    inputs: tuple[Array, Array]
    out: Array | None


def choose_count(device: DeviceInfo) -> int:
    """Choose enough elements for the device to reach its sustained rate."""
    return CPU_ELEMENTS if device.kind == "cpu" else GPU_ELEMENTS


def measure_streams(
    gpu: PersistentVulkanBackend,
    count: int,
    watch: Callable[[Rounds], Rounds],
    turns: int,
) -> StreamMeasurement:
    """Measure copies alone and additions of each kind of array, in `turns` interleaved rounds.

    Sums are checked before they are timed, and again afterwards.

    The rounds pass through `watch`, which may show their progress.
    """
    kernel = load("bls12_381_fq_add")
    with contextlib.ExitStack() as imports:
        kinds = _make_arrays(gpu, count, imports)
        for kind in kinds:
            _check(gpu, kernel, kind)
        mapped = kinds[0]
        assert mapped.out is not None
        chunk = gpu.explain(kernel, *mapped.inputs).chunk
        # Copies use the backend's internals: the device, queues and arrays of the additions.
        with _prepare_copies(gpu._session, mapped.inputs, mapped.out, chunk) as copies:
            functions = [*copies, *(_prepare_add(gpu, kernel, kind) for kind in kinds)]
            rounds = list(watch(time_interleaved(functions, min_rounds=turns)))
        for kind in kinds:
            _check(gpu, kernel, kind)
    rates = [count / seconds for seconds in compute_medians(rounds)]
    shares = [compute_ratio(rounds, 0, index) for index in range(len(functions))]
    first = len(DIRECTIONS)
    return StreamMeasurement(
        count,
        chunk,
        [
            CopyRate(name, rate, into * ELEMENT_BYTES * rate, back * ELEMENT_BYTES * rate)
            for (name, into, back), rate in zip(DIRECTIONS, rates[:first], strict=True)
        ],
        [
            StreamRate(kind.name, count / rate * 1e3, rate, share)
            for kind, rate, share in zip(kinds, rates[first:], shares[first:], strict=True)
        ],
    )


def _make_arrays(
    gpu: PersistentVulkanBackend, count: int, imports: contextlib.ExitStack
) -> list[ArrayKind]:
    """Return arrays of every kind; the mapped arrays come first, because the copies without a
    kernel use them too.
    """
    plain = tile_elements(BLS12_381_FQ, count, 1), tile_elements(BLS12_381_FQ, count, 2)
    imported = []
    if EXTENSION in gpu.device.extensions:
        arrays = plain[0].copy(), plain[1].copy(), np.zeros_like(plain[0])
        for array in arrays:
            imports.enter_context(gpu.import_array(array))
        imported = [ArrayKind("imported", arrays[:2], arrays[2])]
    mapped = gpu.asarray(plain[0]), gpu.asarray(plain[1])
    return [
        ArrayKind("mapped", mapped, gpu.empty(plain[0].shape, plain[0].dtype)),
        ArrayKind("plain, into an array", plain, np.empty_like(plain[0])),
        ArrayKind("plain, new results", plain, None),
        *imported,
    ]


def _prepare_add(
    gpu: PersistentVulkanBackend, kernel: Kernel, kind: ArrayKind
) -> Callable[[], Array]:
    def add() -> Array:
        result: Array = gpu.run(kernel, *kind.inputs, out=kind.out)
        return result

    return add


def _check(gpu: PersistentVulkanBackend, kernel: Kernel, kind: ArrayKind) -> None:
    check_sums(kind.name, *kind.inputs, _prepare_add(gpu, kernel, kind)())


@contextlib.contextmanager
def _prepare_copies(
    session: Session, inputs: Sequence[Array], output: Array, chunk: int
) -> Iterator[list[Callable[[], None]]]:
    """Yield functions that copy whole arrays chunk by chunk, one for each of the `DIRECTIONS`."""
    resources = session.resources
    upload = resources.upload or resources.compute
    download = resources.download or resources.compute
    with (
        _open_probe(session, upload, inputs, chunk, into=True) as into,
        _open_probe(session, download, [output], chunk, into=False) as back,
    ):
        yield [
            lambda: run_probes([into, back]),
            lambda: run_probes([into]),
            lambda: run_probes([back]),
        ]


@contextlib.contextmanager
def _open_probe(
    session: Session, timeline: Timeline, arrays: Sequence[Array], chunk: int, *, into: bool
) -> Iterator[BandwidthProbe]:
    """Open a probe that copies the arrays' chunks into device memory, or back from it."""
    memory = session.resources.memory
    with contextlib.ExitStack() as stack:
        areas = []
        for _ in range(IN_FLIGHT):
            nbytes = len(arrays) * chunk * ELEMENT_BYTES
            areas.append(memory.allocate(Purpose.DEVICE, nbytes, "staging"))
            stack.callback(memory.release, areas[-1])
        chunks = [
            [*_list_copies(session, [array[start : start + chunk] for array in arrays], area, into)]
            for area, start in zip(
                itertools.cycle(areas), range(0, len(arrays[0]), chunk), strict=False
            )
        ]
        yield stack.enter_context(open_probe(session.resources, timeline, chunks))


def _list_copies(
    session: Session, parts: Sequence[Array], area: Allocation, into: bool
) -> Iterator[Copy]:
    """Yield copies between mapped arrays and consecutive ranges of device memory."""
    offset = area.offset
    for part in parts:
        mapped = session.mapped.find(part)
        assert mapped is not None, "only mapped arrays are copied without a kernel"
        here, there = (mapped.buffer, mapped.offset), (area.buffer, offset)
        yield Copy(*here, *there, part.nbytes) if into else Copy(*there, *here, part.nbytes)
        offset += part.nbytes
