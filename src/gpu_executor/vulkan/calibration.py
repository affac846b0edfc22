"""Calibration: measures the bus, the queues and the memory of a device, and the host's copies.

Each value is measured for a few hundredths of a second. For the device's own work the fastest run
counts, because an idle device needs several runs to reach its full clock rate.
"""

from __future__ import annotations

import contextlib
import datetime
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

import numpy as np

from gpu_executor.calls.call import Array, Call, check
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import ElementType
from gpu_executor.kernels import load
from gpu_executor.plan import CallPlan, DataPath, QueueUse
from gpu_executor.plan.calibration import Calibration
from gpu_executor.plan.splitter import RangeGrid, split_call
from gpu_executor.steps.bound_steps import Copy
from gpu_executor.vulkan.commands import COPIES, HOST, CommandPool, Recorder
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.mapped_arrays import BufferRanges, MappedArrays
from gpu_executor.vulkan.memory import Allocation, Purpose, find_input_purpose, mapped_view
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.ring import Ring, run_in_slot
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.slot_buffers import SlotLayout
from gpu_executor.vulkan.timeline import Submission, Timeline

IN_FLIGHT = 4
"""Copies in flight in each direction."""


@dataclass(frozen=True, slots=True)
class BandwidthProbe:
    """Recorded copies in one direction on one queue, without a kernel."""

    timeline: Timeline
    submissions: list[Submission]


@contextlib.contextmanager
def open_probe(
    resources: Resources, timeline: Timeline, chunks: Sequence[Sequence[Copy]]
) -> Iterator[BandwidthProbe]:
    """Record the copies of each chunk for one queue."""
    pool = CommandPool(resources.device, timeline.family)
    submissions: list[Submission] = []
    try:
        for copies in chunks:
            commands = pool.allocate()
            with Recorder(commands) as recorder:
                recorder.copy(copies)
                recorder.barrier(COPIES, HOST)
            submissions.append(timeline.prepare(commands))
        yield BandwidthProbe(timeline, submissions)
    finally:
        # After Ctrl-C some copies are still in flight; a second Ctrl-C must not end this wait.
        interrupt = None
        for submission in submissions:
            interrupt = timeline.wait_uninterrupted(submission) or interrupt
        pool.close()
        if interrupt is not None:
            raise interrupt


def run_probes(probes: Sequence[BandwidthProbe]) -> None:
    """Submit every chunk of every probe, a few in flight in each; returns when all are done."""
    for chunk in range(len(probes[0].submissions)):
        for probe in probes:
            if chunk >= IN_FLIGHT:
                probe.timeline.wait(probe.submissions[chunk - IN_FLIGHT])
            probe.timeline.submit(probe.submissions[chunk])
    for probe in probes:
        probe.timeline.wait(probe.submissions[-1])


KERNEL = "bls12_381_fq_add"
"""It reads two bytes for each byte it writes and computes little, so bus and memory dominate."""
COPIED = 32 << 20
"""Bytes copied to the device; half as many are copied back."""
SMALL = 64
"""Elements of a small call."""
LARGE, LARGE_ON_A_CPU = 1 << 19, 1 << 16
"""Elements of a large call, on a GPU and on a software device."""
CHUNKS = 24
SLOTS = 4
"""Small chunks that overlap, and the slots for them."""
HOST_CHUNK_BYTES = (3 << 19, 6 << 20)
HOST_CHUNKS = 12
HOST_CHUNK_SLOTS = 8
"""Two sizes of chunks from plain host arrays, the number of chunks, and the slots for them."""
WORK_GROUP = 128
SECONDS = 0.025
"""The time to measure each value."""
SLOWEST_DIRECT_FILL = 2.0
"""The most time of a fill in device memory, in fills of host memory, which the device has to copy
too: with the copy, such a fill takes two to three times as long. Each device is measured; an NVIDIA
H200 has 0.6 to 0.7."""
SHORTEST = 1e-6
"""Differences below this many seconds are not significant."""


def measure(
    resources: Resources, mapped: MappedArrays, device_memory: DeviceMemory, info: DeviceInfo
) -> Calibration:
    """Measure everything, in about half a second. Other work on the device falsifies the result."""
    begun = perf_counter()
    # The host's copies first: they leave the device idle, and it would need time to wake up after.
    purpose = resources.memory.input_purpose = _choose_input_purpose(resources)
    most = resources.copy_threads.max_threads
    fewer = [threads for threads in (1, 2, 4, 8, 16) if threads < most]
    fills = host = _measure_host_copies(resources, Purpose.UPLOAD, [*fewer, most])
    if purpose is Purpose.INPUT:
        fills = _measure_host_copies(resources, purpose, [1, most])
    benchmark = _AdditionBenchmark(resources, mapped, device_memory, info)
    into, back, both = _measure_bus(resources)
    call_mapped, kernel_mapped = benchmark.measure_calls("host-visible", benchmark.in_mapped_memory)
    _, kernel = benchmark.measure_calls("device-local", benchmark.on_device)
    chunk_staged = benchmark.time_chunk("device-local", "one")
    sharing, shared_copy = _measure_shared_copies(resources)
    fill_copy, fastest = fills[0][1], max(rate for _, rate in fills)
    handing_over, chunks_copy = sharing, fastest
    if (
        1 / (1 / into + 0.5 / back + 1.5 / kernel) > fill_copy
    ):  # otherwise everything waits for the device
        handed, rate = benchmark.measure_host_chunks()
        # A line through two noisy times may be flatter than any copy is fast.
        handing_over, chunks_copy = handed - chunk_staged, min(rate, fastest)
    return Calibration(
        copy_in=into,
        copy_out=back,
        copy_both=both,
        direct_fill=purpose is Purpose.INPUT,
        host_copy=host,
        fill_copy=fill_copy,
        shared_copy=shared_copy,
        sharing=max(sharing, SHORTEST),
        chunks_copy=chunks_copy,
        handing_over=max(handing_over, SHORTEST),
        call_mapped=call_mapped,
        call_staged=benchmark.time_call("device-local", benchmark.in_mapped_memory, SMALL),
        chunk_mapped=benchmark.time_chunk("host-visible", "one"),
        chunk_staged=chunk_staged,
        chunk_split=benchmark.time_chunk("device-local", "split") if resources.upload else None,
        chunk_several=benchmark.time_chunk("device-local", "several")
        if resources.parallel_compute
        else None,
        kernel=kernel,
        kernel_mapped=kernel_mapped,
        seconds=perf_counter() - begun,
        when=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def _time_runs(function: Callable[[], object]) -> list[float]:
    """Return the seconds of several runs, after a first run that touches the memory."""
    function()
    taken: list[float] = []
    end = perf_counter() + SECONDS
    while len(taken) < 2 or perf_counter() < end:
        begun = perf_counter()
        function()
        taken.append(perf_counter() - begun)
    return taken


def _time_fastest(function: Callable[[], object]) -> float:
    """Return the seconds of the fastest run."""
    return min(_time_runs(function))


def _time_median(function: Callable[[], object]) -> float:
    """Return the median of the runs in seconds, for work that depends on waking threads."""
    import statistics

    return statistics.median(_time_runs(function))


def _measure_bus(resources: Resources) -> tuple[float, float, float]:
    """Return bytes per second to the device, to the host, and in both directions at once."""
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
            chunks = [[copy] for copy in copies]
            return stack.enter_context(open_probe(resources, timeline, chunks))

        there = probe(upload, Purpose.UPLOAD, COPIED, into=True)
        back = probe(download, Purpose.READBACK, COPIED // 2, into=False)
        return (
            COPIED / _time_fastest(lambda: run_probes([there])),
            COPIED // 2 / _time_fastest(lambda: run_probes([back])),
            (COPIED + COPIED // 2) / _time_fastest(lambda: run_probes([there, back])),
        )


def _choose_input_purpose(resources: Resources) -> Purpose:
    """UPLOAD instead of INPUT where the host writes to device memory very slowly: without write
    combining, each store crosses the bus by itself."""
    found = find_input_purpose(resources.device)
    if found is Purpose.UPLOAD:
        return found
    nbytes = HOST_CHUNK_BYTES[0]
    source = np.ones(nbytes, np.uint8)

    def time_fill(purpose: Purpose) -> float:
        with contextlib.ExitStack() as stack:
            room = _allocate(stack, resources, purpose, nbytes)
            target = mapped_view(room, 0, nbytes, ElementType(np.dtype(np.uint8)))
            return _time_median(lambda: np.copyto(target, source))

    direct, staged = map(time_fill, (Purpose.INPUT, Purpose.UPLOAD))
    return found if direct <= SLOWEST_DIRECT_FILL * staged else Purpose.UPLOAD


def _measure_host_copies(
    resources: Resources, purpose: Purpose, counts: Sequence[int]
) -> tuple[tuple[int, float], ...]:
    """Return bytes per second from a host array to mapped memory, by number of threads."""
    copy_threads = resources.copy_threads
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, copy_threads, "threads", copy_threads.max_threads)
        room = _allocate(stack, resources, purpose, COPIED)
        target = mapped_view(room, 0, COPIED, ElementType(np.dtype(np.uint8)))
        source = np.ones(COPIED, np.uint8)

        def measure_with(threads: int) -> float:
            copy_threads.threads = threads
            return COPIED / _time_median(lambda: copy_threads.copy([(target, source)]))

        return tuple((threads, measure_with(threads)) for threads in counts)


def _measure_shared_copies(resources: Resources) -> tuple[float, float]:
    """Return the fixed seconds and the bytes per second of a copy that the copy threads share."""
    with contextlib.ExitStack() as stack:
        most = HOST_CHUNK_BYTES[-1]
        room = _allocate(stack, resources, resources.memory.input_purpose, most)
        target = mapped_view(room, 0, most, ElementType(np.dtype(np.uint8)))
        sources = np.ones((HOST_CHUNKS, most), np.uint8)

        def copy_all(nbytes: int) -> None:
            for source in sources:
                resources.copy_threads.copy([(target[:nbytes], source[:nbytes])])

        return _fit_line(lambda nbytes: _time_median(lambda: copy_all(nbytes)) / HOST_CHUNKS)


def _fit_line(seconds: Callable[[int], float]) -> tuple[float, float]:
    """Fit a line through the times of two sizes; return fixed seconds and bytes per second."""
    few, many = HOST_CHUNK_BYTES
    begun = seconds(few)
    slope = max(seconds(many) - begun, SHORTEST) / (many - few)
    return max(begun - few * slope, 0.0), 1 / slope


def _run_ring(
    slots: list[Slot], copy_threads: CopyThreads, calls: Sequence[Call], chunks: Sequence[RangeGrid]
) -> None:
    ring = Ring(slots, copy_threads)
    try:
        for call in calls:
            deque(ring.feed(call, chunks), maxlen=0)
        deque(ring.flush(), maxlen=0)
    except BaseException:
        ring.abandon()
        raise


def _allocate(
    stack: contextlib.ExitStack, resources: Resources, purpose: Purpose, nbytes: int
) -> Allocation:
    allocation = resources.memory.allocate(purpose, nbytes, "staging")
    stack.callback(resources.memory.release, allocation)
    return allocation


class _AdditionBenchmark:
    """Additions of zeros, of few and of many elements, in slots of their own."""

    def __init__(
        self,
        resources: Resources,
        mapped: MappedArrays,
        device_memory: DeviceMemory,
        info: DeviceInfo,
    ) -> None:
        self._resources, self._kernel = resources, load(KERNEL)
        self._large = LARGE_ON_A_CPU if info.kind == "cpu" else LARGE
        assert self._kernel.types is not None
        self._type = self._kernel.types[0]
        made = [mapped.make((self._large, *self._type.shape), self._type.dtype) for _ in range(3)]
        self._arrays = [array for array, _, _ in made]
        self.in_mapped_memory: BufferRanges = tuple(buffer_range for _, buffer_range, _ in made)
        for array in self._arrays:
            array[...] = 0
        self._device_arrays = [device_memory.put(array) for array in self._arrays]
        self.on_device: BufferRanges = tuple(
            device_memory.find_range(array) for array in self._device_arrays
        )

    def measure_calls(self, path: DataPath, buffer_ranges: BufferRanges) -> tuple[float, float]:
        """Return the seconds of a small call, and the bytes per second of additional elements."""
        few, many = (self.time_call(path, buffer_ranges, count) for count in (SMALL, self._large))
        moved = 3 * self._type.nbytes * (self._large - SMALL)
        return few, moved / max(many - few, SHORTEST)

    def time_call(self, path: DataPath, buffer_ranges: BufferRanges, count: int) -> float:
        """Return the seconds of one call."""
        plan, call = self._make_plan(path, "one", count), self._make_call(buffer_ranges, count)
        chunks = split_call(plan, call.signature, self._resources.device.info)
        with contextlib.closing(self._make_slot(plan, call)) as slot:
            return _time_fastest(lambda: run_in_slot(slot, call, chunks))

    def time_chunk(self, path: DataPath, queues: QueueUse) -> float:
        """Return the seconds per chunk of several small chunks that overlap."""
        plan = self._make_plan(path, queues, SMALL)
        calls = [self._make_call(self.in_mapped_memory, SMALL) for _ in range(CHUNKS)]
        return self._time_ring(plan, calls, SLOTS) / CHUNKS

    def _time_ring(self, plan: CallPlan, calls: Sequence[Call], depth: int) -> float:
        """Return the seconds of all the calls in a ring of `depth` slots."""
        copy_threads, info = self._resources.copy_threads, self._resources.device.info
        chunks = split_call(plan, calls[0].signature, info)
        with contextlib.ExitStack() as stack:
            slots = [
                stack.enter_context(contextlib.closing(self._make_slot(plan, calls[0])))
                for _ in range(depth)
            ]
            return _time_median(lambda: _run_ring(slots, copy_threads, calls, chunks))

    def measure_host_chunks(self) -> tuple[float, float]:
        """Return the fixed seconds and bytes per second of chunks that the copy threads fill."""
        return _fit_line(lambda nbytes: self._time_host_chunk(nbytes // (2 * self._type.nbytes)))

    def _time_host_chunk(self, count: int) -> float:
        """Return the seconds per chunk of `count` elements."""
        plan = self._make_plan("device-local", "one", count)
        source = np.empty((HOST_CHUNKS, 2, count, *self._type.shape), self._type.dtype)
        source[...] = 0  # written, so that the pages are allocated
        calls = [
            self._make_call((None, None, self.in_mapped_memory[2]), count, pair) for pair in source
        ]
        return self._time_ring(plan, calls, HOST_CHUNK_SLOTS) / HOST_CHUNKS

    def _make_call(
        self, buffer_ranges: BufferRanges, count: int, inputs: Sequence[Array] | None = None
    ) -> Call:
        """Make a call on the first elements of the mapped arrays, or on other inputs."""
        given = [array[:count] for array in self._arrays[:2]] if inputs is None else list(inputs)
        call = check(self._kernel, given).make_call(given)
        call.set_outputs([self._arrays[2][:count]])
        call.buffer_ranges = buffer_ranges
        return call

    def _make_slot(self, plan: CallPlan, call: Call) -> Slot:
        return Slot(self._resources, SlotLayout.of(plan, call.signature))

    def _make_plan(self, path: DataPath, queues: QueueUse, count: int) -> CallPlan:
        return CallPlan(count, path, count, count, 1, queues, WORK_GROUP, 1, ())
