"""Lanes: copies in one direction on one queue, without a kernel, to see what the bus can do.

Measures a device: what its bus, its queues and its memory do, and how fast the host copies.

Each figure comes from what fits into a few hundredths of a second. Of the device's own work the
best turn counts: one that idled needs some of them to reach its clock.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from gpu_executor.calibration import Calibration
from gpu_executor.call import Array, Call, check
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import ElementType
from gpu_executor.kernels import load
from gpu_executor.plan import DataPath, Plan, QueueUse
from gpu_executor.vulkan.commands import CommandPool, Copy, Recorder
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.mapped_arrays import BufferRanges, MappedArrays
from gpu_executor.vulkan.memory import Allocation, Purpose, mapped_view
from gpu_executor.vulkan.prepared_call import steps_of
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.ring import Ring, Step, turn
from gpu_executor.vulkan.slot import Slot, SlotLayout
from gpu_executor.vulkan.timeline import Submission, Timeline

IN_FLIGHT = 4
"""Copies of one direction that the device has at once."""


@dataclass(frozen=True, slots=True)
class BandwidthProbe:
    """Copies, piece by piece, recorded."""

    timeline: Timeline
    submissions: list[Submission]


@contextlib.contextmanager
def open_probe(
    resources: Resources, timeline: Timeline, pieces: Sequence[Sequence[Copy]]
) -> Iterator[BandwidthProbe]:
    """Record the copies of each piece for one queue."""
    pool = CommandPool(resources.device, timeline.family)
    submissions: list[Submission] = []
    try:
        for copies in pieces:
            commands = pool.allocate()
            with Recorder(commands) as recorder:
                recorder.copy(copies)
                recorder.copies_before_host()
            submissions.append(timeline.prepare(commands))
        yield BandwidthProbe(timeline, submissions)
    finally:
        # Some are in flight where Ctrl-C ended it; another one must not end this.
        interrupt = None
        for submission in submissions:
            interrupt = timeline.wait_out(submission) or interrupt
        pool.close()
        if interrupt is not None:
            raise interrupt


def run_probes(probes: Sequence[BandwidthProbe]) -> None:
    """Every piece of every lane, a few in flight in each; returns when all are done."""
    for piece in range(len(probes[0].submissions)):
        for probe in probes:
            if piece >= IN_FLIGHT:
                probe.timeline.wait(probe.submissions[piece - IN_FLIGHT])
            probe.timeline.submit(probe.submissions[piece])
    for probe in probes:
        probe.timeline.wait(probe.submissions[-1])


KERNEL = "bls12_381_fq_add"
"""Reads two bytes for each one it writes and hardly computes: the bus and the memory show."""
COPIED = 32 << 20
"""Bytes that are copied in; half as many come back."""
FEW = 64
MANY, MANY_ON_A_CPU = 1 << 19, 1 << 16
"""Elements of small and of large calls."""
PIECES = 24
SLOTS = 4
PLAIN_BYTES = (3 << 19, 6 << 20)
PLAIN_PIECES = 12
PLAIN_SLOTS = 8
"""Two sizes of pieces from plain arrays, how many of them, and the slots for them."""
WORK_GROUP = 128
SECONDS = 0.025
"""For each figure."""
SHORTEST = 1e-6
"""Seconds below which two times are the same."""


def measure(
    resources: Resources, mapped: MappedArrays, device_memory: DeviceMemory, info: DeviceInfo
) -> Calibration:
    """All figures, in about half a second. Whatever else the device does meanwhile spoils them."""
    begun = perf_counter()
    # The host's copies first: they leave the device idle, and it would be slow to wake up after.
    host = _host_copies(resources)
    adding = _Additions(resources, mapped, device_memory, info)
    into, back, both = _bus(resources)
    call_mapped, kernel_mapped = adding.alone("host-visible", adding.in_mapped_memory)
    _, kernel = adding.alone("device-local", adding.on_device)
    piece_staged = adding.piece("device-local", "one")
    sharing, shared_copy = _shared_copies(resources)
    handing_over, pieces_copy = sharing, max(rate for _, rate in host)
    if 1 / (1 / into + 0.5 / back + 1.5 / kernel) > host[0][1]:  # else all wait for the device
        handed, pieces_copy = adding.plain_pieces()
        handing_over = handed - piece_staged
    return Calibration(
        copy_in=into,
        copy_out=back,
        copy_both=both,
        host_copy=host,
        shared_copy=shared_copy,
        sharing=max(sharing, SHORTEST),
        pieces_copy=pieces_copy,
        handing_over=max(handing_over, SHORTEST),
        call_mapped=call_mapped,
        call_staged=adding.call("device-local", adding.in_mapped_memory, FEW),
        piece_mapped=adding.piece("host-visible", "one"),
        piece_staged=piece_staged,
        piece_split=adding.piece("device-local", "split") if resources.upload else None,
        piece_several=adding.piece("device-local", "several") if resources.side_by_side else None,
        kernel=kernel,
        kernel_mapped=kernel_mapped,
        seconds=perf_counter() - begun,
        when=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def _times(function: Callable[[], object]) -> list[float]:
    """The seconds of some turns, after one in which memory is touched for the first time."""
    function()
    taken: list[float] = []
    end = perf_counter() + SECONDS
    while len(taken) < 2 or perf_counter() < end:
        begun = perf_counter()
        function()
        taken.append(perf_counter() - begun)
    return taken


def _best(function: Callable[[], object]) -> float:
    """The seconds of the fastest turn."""
    return min(_times(function))


def _usual(function: Callable[[], object]) -> float:
    """The seconds of most turns, for what depends on how threads are woken."""
    import statistics

    return statistics.median(_times(function))


def _bus(resources: Resources) -> tuple[float, float, float]:
    """Bytes a second into device memory, back, and both ways at once."""
    upload = resources.upload or resources.compute
    download = resources.download or resources.compute
    with contextlib.ExitStack() as stack:

        def probe(timeline: Timeline, host: Purpose, nbytes: int, *, into: bool) -> BandwidthProbe:
            ends = [_allocate(stack, resources, kind, nbytes) for kind in (host, Purpose.DEVICE)]
            source, target = ends if into else reversed(ends)
            step = nbytes // IN_FLIGHT
            copies = [
                Copy(source.buffer, source.offset + at, target.buffer, target.offset + at, step)
                for at in range(0, nbytes, step)
            ]
            pieces = [[copy] for copy in copies]
            return stack.enter_context(open_probe(resources, timeline, pieces))

        there = probe(upload, Purpose.UPLOAD, COPIED, into=True)
        back = probe(download, Purpose.READBACK, COPIED // 2, into=False)
        return (
            COPIED / _best(lambda: run_probes([there])),
            COPIED // 2 / _best(lambda: run_probes([back])),
            (COPIED + COPIED // 2) / _best(lambda: run_probes([there, back])),
        )


def _host_copies(resources: Resources) -> tuple[tuple[int, float], ...]:
    """Bytes a second from a plain array into mapped memory, by threads."""
    copy_threads = resources.copy_threads
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, copy_threads, "threads", copy_threads.most)
        room = _allocate(stack, resources, Purpose.UPLOAD, COPIED)
        target = mapped_view(room, 0, COPIED, ElementType(np.dtype(np.uint8)))
        source = np.ones(COPIED, np.uint8)

        def by(threads: int) -> float:
            copy_threads.threads = threads
            return COPIED / _usual(lambda: copy_threads.copy([(target, source)]))

        fewer = [threads for threads in (1, 2, 4, 8, 16) if threads < copy_threads.most]
        return tuple((threads, by(threads)) for threads in (*fewer, copy_threads.most))


def _shared_copies(resources: Resources) -> tuple[float, float]:
    """Seconds at nothing and bytes a second of a copy that the threads share."""
    with contextlib.ExitStack() as stack:
        room = _allocate(stack, resources, Purpose.UPLOAD, PLAIN_BYTES[-1])
        target = mapped_view(room, 0, PLAIN_BYTES[-1], ElementType(np.dtype(np.uint8)))
        sources = np.ones((PLAIN_PIECES, PLAIN_BYTES[-1]), np.uint8)

        def copy_all(nbytes: int) -> None:
            for source in sources:
                resources.copy_threads.copy([(target[:nbytes], source[:nbytes])])

        return _line(lambda nbytes: _usual(lambda: copy_all(nbytes)) / PLAIN_PIECES)


def _line(seconds: Callable[[int], float]) -> tuple[float, float]:
    """Through the times for two numbers of bytes: seconds at nothing, then bytes a second."""
    few, many = PLAIN_BYTES
    begun = seconds(few)
    slope = max(seconds(many) - begun, SHORTEST) / (many - few)
    return max(begun - few * slope, 0.0), 1 / slope


def _run_ring(
    slots: list[Slot], copy_threads: CopyThreads, calls: Sequence[Call], steps: Sequence[Step]
) -> None:
    ring = Ring(slots, copy_threads)
    try:
        for call in calls:
            deque(ring.feed(call, steps), maxlen=0)
        deque(ring.flush(), maxlen=0)
    except BaseException:
        ring.abandon()
        raise


def _allocate(
    stack: contextlib.ExitStack, resources: Resources, purpose: Purpose, nbytes: int
) -> Allocation:
    allocation = resources.memory.allocate(purpose, nbytes)
    stack.callback(resources.memory.release, allocation)
    return allocation


class _Additions:
    """Additions of few and of many elements, of zeros, by slots that nobody else uses."""

    def __init__(
        self,
        resources: Resources,
        mapped: MappedArrays,
        device_memory: DeviceMemory,
        info: DeviceInfo,
    ) -> None:
        self._resources, self._kernel = resources, load(KERNEL)
        self._many = MANY_ON_A_CPU if info.kind == "cpu" else MANY
        assert self._kernel.types is not None
        self._type = self._kernel.types[0]
        made = [mapped.make((self._many, *self._type.shape), self._type.dtype) for _ in range(3)]
        self._arrays = [array for array, _ in made]
        self.in_mapped_memory: BufferRanges = tuple(place for _, place in made)
        for array in self._arrays:
            array[...] = 0
        self._there = [device_memory.put(array) for array in self._arrays]
        self.on_device: BufferRanges = tuple(device_memory.place(array) for array in self._there)

    def alone(self, path: DataPath, places: BufferRanges) -> tuple[float, float]:
        """The seconds of a call of few elements, and the bytes a second that more ones add."""
        few, many = (self.call(path, places, count) for count in (FEW, self._many))
        moved = 3 * self._type.nbytes * (self._many - FEW)
        return few, moved / max(many - few, SHORTEST)

    def call(self, path: DataPath, places: BufferRanges, count: int) -> float:
        """The seconds of a call."""
        plan, call = self._plan(path, "one", count), self._call(places, count)
        steps = steps_of(plan, call.signature)
        with contextlib.closing(self._slot(plan, call)) as slot:
            return _best(lambda: turn(slot, call, steps))

    def piece(self, path: DataPath, queues: QueueUse) -> float:
        """The seconds of each of several small pieces that overlap."""
        plan = self._plan(path, queues, FEW)
        calls = [self._call(self.in_mapped_memory, FEW) for _ in range(PIECES)]
        return self._ring_seconds(plan, calls, SLOTS) / PIECES

    def _ring_seconds(self, plan: Plan, calls: Sequence[Call], depth: int) -> float:
        """Of all the calls, in so many slots."""
        steps, copy_threads = steps_of(plan, calls[0].signature), self._resources.copy_threads
        with contextlib.ExitStack() as stack:
            slots = [
                stack.enter_context(contextlib.closing(self._slot(plan, calls[0])))
                for _ in range(depth)
            ]
            return _usual(lambda: _run_ring(slots, copy_threads, calls, steps))

    def plain_pieces(self) -> tuple[float, float]:
        """Seconds at nothing and bytes a second of pieces whose inputs other threads copy."""
        return _line(lambda nbytes: self._plain_piece(nbytes // (2 * self._type.nbytes)))

    def _plain_piece(self, count: int) -> float:
        """The seconds of each of several."""
        plan = self._plan("device-local", "one", count)
        source = np.empty((PLAIN_PIECES, 2, count, *self._type.shape), self._type.dtype)
        source[...] = 0  # written, so that it is memory of its own
        calls = [self._call((None, None, self.in_mapped_memory[2]), count, pair) for pair in source]
        return self._ring_seconds(plan, calls, PLAIN_SLOTS) / PLAIN_PIECES

    def _call(
        self, places: BufferRanges, count: int, inputs: Sequence[Array] | None = None
    ) -> Call:
        """On the mapped arrays' first elements, or on other inputs."""
        given = [array[:count] for array in self._arrays[:2]] if inputs is None else list(inputs)
        call = check(self._kernel, given).call(given)
        call.set_outputs([self._arrays[2][:count]])
        call.places = places
        return call

    def _slot(self, plan: Plan, call: Call) -> Slot:
        return Slot(self._resources, SlotLayout.of(plan, call.signature))

    def _plan(self, path: DataPath, queues: QueueUse, count: int) -> Plan:
        return Plan(count, path, count, count, 1, queues, WORK_GROUP, 1, ())
