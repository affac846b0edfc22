"""Streams: additions of many elements against the limit of the bus, measured in the same run.

The limit is what copies alone reach: as many bytes in and out as the additions move, both
directions at once, without a kernel between them.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.bench.batch import in_turns, medians
from gpu_executor.bench.samples import elements
from gpu_executor.call import Array
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.primes import BLS12_381_FQ
from gpu_executor.vulkan.calibration import IN_FLIGHT, BandwidthProbe, open_probe, run_probes
from gpu_executor.vulkan.commands import Copy
from gpu_executor.vulkan.mapped_arrays import EXTENSION
from gpu_executor.vulkan.memory import Allocation, Purpose
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.timeline import Timeline

GPU_ELEMENTS, CPU_ELEMENTS = 1 << 24, 1 << 20
TURNS = 15
SAMPLE = 1_000
MAPPED_AIM, PLAIN_AIM = 0.95, 150e6
"""The share of the limit for mapped arrays on a discrete GPU; additions a second for plain ones on
an NVIDIA H200."""

ELEMENT = BLS12_381_FQ.element_bytes
DIRECTIONS = (("both at once", 2, 1), ("in alone", 2, 0), ("out alone", 0, 1))
"""What is copied alone, and the arrays that go in and come back with it."""
Turns = Iterable[list[float]]


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies alone, for as many elements a second; 0 bytes for a direction that rested."""

    direction: str
    elements_per_second: float
    bytes_in_per_second: float
    bytes_out_per_second: float


@dataclass(frozen=True, slots=True)
class Streamed:
    """Additions through the whole of it, from arrays of one kind."""

    arrays: str
    milliseconds: float
    additions_per_second: float
    of_limit: float
    """Over what copies alone reached with both directions at once."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One run."""

    elements: int
    chunk: int
    """Elements of one copy: those of the plan's chunks."""
    copies: list[Copies]
    streams: list[Streamed]


@dataclass(frozen=True, slots=True)
class Case:
    """Arrays of one kind; new results each time where `out` is None."""

    name: str
    inputs: tuple[Array, Array]
    out: Array | None


def usual_elements(device: DeviceInfo) -> int:
    """Enough for the device to show what it can keep up."""
    return CPU_ELEMENTS if device.kind == "cpu" else GPU_ELEMENTS


def measure(gpu: PersistentVulkanBackend, count: int, watched: Callable[[Turns], Turns]) -> Figures:
    """Copies alone and additions of each kind of arrays, in turns, `TURNS` of them.

    `watched` gets to see the turns as they are taken, and hands them on.
    """
    kernel = load("bls12_381_fq_add")
    with contextlib.ExitStack() as imports:
        cases = _cases(gpu, count, imports)
        mapped = cases[0]
        assert mapped.out is not None
        chunk = gpu.explain(kernel, *mapped.inputs).chunk
        # From within the backend: the same device, queues and arrays as the additions have.
        with _copies_alone(gpu._session, mapped.inputs, mapped.out, chunk) as copying:
            functions = [*copying, *(_adding(gpu, kernel, case) for case in cases)]
            turns = list(watched(in_turns(functions, budget=0, least=TURNS, most=TURNS)))
        for case in cases:
            _check(gpu, kernel, case)
    rates = [count / seconds for seconds in medians(turns)]
    # Shares within each turn, as the ratios of batches are taken, and for the same reason.
    shares = [statistics.median(t[0] / t[i] for t in turns) for i in range(len(functions))]
    first = len(DIRECTIONS)
    return Figures(
        count,
        chunk,
        [
            Copies(name, rate, into * ELEMENT * rate, back * ELEMENT * rate)
            for (name, into, back), rate in zip(DIRECTIONS, rates[:first], strict=True)
        ],
        [
            Streamed(case.name, count / rate * 1e3, rate, share)
            for case, rate, share in zip(cases, rates[first:], shares[first:], strict=True)
        ],
    )


def _cases(gpu: PersistentVulkanBackend, count: int, imports: contextlib.ExitStack) -> list[Case]:
    """The kinds of arrays; the mapped ones come first, the copies alone use them too."""
    plain = elements(BLS12_381_FQ, count, 1), elements(BLS12_381_FQ, count, 2)
    imported = []
    if EXTENSION in gpu.device.extensions:
        theirs = plain[0].copy(), plain[1].copy(), np.zeros_like(plain[0])
        for array in theirs:
            imports.enter_context(gpu.import_array(array))
        imported = [Case("imported", theirs[:2], theirs[2])]
    return [
        Case("mapped", (gpu.asarray(plain[0]), gpu.asarray(plain[1])), gpu.empty(plain[0].shape)),
        Case("plain, into an array", plain, np.empty_like(plain[0])),
        Case("plain, new results", plain, None),
        *imported,
    ]


def _adding(gpu: PersistentVulkanBackend, kernel: Kernel, case: Case) -> Callable[[], Array]:
    def add() -> Array:
        result: Array = gpu.run(kernel, *case.inputs, out=case.out)
        return result

    return add


def _check(gpu: PersistentVulkanBackend, kernel: Kernel, case: Case) -> None:
    """Elements from all over the result, its first and last among them, against the reference."""
    result = _adding(gpu, kernel, case)()
    among = np.linspace(0, len(result) - 1, min(SAMPLE, len(result)), dtype=np.intp)
    assert kernel.reference is not None
    expected = kernel.reference(*(array[among] for array in case.inputs))
    if not np.array_equal(result[among], expected):
        raise AssertionError(f"{case.name}: wrong sums")


@contextlib.contextmanager
def _copies_alone(
    session: Session, inputs: Sequence[Array], output: Array, chunk: int
) -> Iterator[list[Callable[[], None]]]:
    """Functions that copy whole arrays piece by piece in each of the `DIRECTIONS`."""
    resources = session.resources
    upload = resources.upload or resources.compute
    download = resources.download or resources.compute
    with (
        _lane(session, upload, inputs, chunk, into=True) as into,
        _lane(session, download, [output], chunk, into=False) as back,
    ):
        yield [
            lambda: run_probes([into, back]),
            lambda: run_probes([into]),
            lambda: run_probes([back]),
        ]


@contextlib.contextmanager
def _lane(
    session: Session, timeline: Timeline, arrays: Sequence[Array], chunk: int, *, into: bool
) -> Iterator[BandwidthProbe]:
    """The arrays' pieces into device memory or back from it."""
    memory = session.resources.memory
    with contextlib.ExitStack() as stack:
        areas = []
        for _ in range(IN_FLIGHT):
            areas.append(memory.allocate(Purpose.DEVICE, len(arrays) * chunk * ELEMENT))
            stack.callback(memory.release, areas[-1])
        pieces = [
            [*_copies(session, [array[start : start + chunk] for array in arrays], area, into)]
            for area, start in zip(
                itertools.cycle(areas), range(0, len(arrays[0]), chunk), strict=False
            )
        ]
        yield stack.enter_context(open_probe(session.resources, timeline, pieces))


def _copies(
    session: Session, parts: Sequence[Array], area: Allocation, into: bool
) -> Iterator[Copy]:
    """Mapped arrays one after the other into an area of device memory, or back from it."""
    offset = area.offset
    for part in parts:
        place = session.mapped.find(part)
        assert place is not None, "the copies alone are of mapped arrays"
        here, there = (place.buffer, place.offset), (area.buffer, offset)
        yield Copy(*here, *there, part.nbytes) if into else Copy(*there, *here, part.nbytes)
        offset += part.nbytes
