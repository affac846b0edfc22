"""A session: one open device, with everything that is cached between calls.

The persistent backend holds one session; the one-shot backend opens one per call. Both use Vulkan
only through a session.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any, Protocol

import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.idle_memory import IdleMemory, MemoryUse
from gpu_executor.arrays.overlaps import list_outputs
from gpu_executor.calls.call import AnyArray, Array, Call, as_arrays, check_keep
from gpu_executor.common.fork import raise_forked, register_fork_handler
from gpu_executor.errors import (
    ClosedError,
    DeviceLacksError,
    GpuError,
    OutOfMemoryError,
)
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.plan import CallPlan, RunOptions, shrink_plan
from gpu_executor.plan.calibration import Calibration
from gpu_executor.plan.splitter import split_call
from gpu_executor.settings import Settings
from gpu_executor.telemetry.spans import TraceFile
from gpu_executor.telemetry.stages import StageCounters, sum_counters
from gpu_executor.vulkan.calibration import measure
from gpu_executor.vulkan.copy_threads import CopyThreads
from gpu_executor.vulkan.descriptors import DescriptorPools
from gpu_executor.vulkan.device import Device, QueueAddress
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.device_trials import TrialFile
from gpu_executor.vulkan.disk_cache import PipelineFiles, read_calibration, write_calibration
from gpu_executor.vulkan.instance import choose_device, open_instance
from gpu_executor.vulkan.mapped_arrays import (
    BatchResults,
    MappedArrays,
    RecycledResults,
    can_recycle_results,
    count_recycled_bytes,
)
from gpu_executor.vulkan.memory import MemoryPool, Purpose
from gpu_executor.vulkan.pipeline_cache import PipelineCache
from gpu_executor.vulkan.prepared_call import (
    BufferRangeFinder,
    CallPreparer,
    PreparedCall,
)
from gpu_executor.vulkan.profile import Profile
from gpu_executor.vulkan.resources import Resources
from gpu_executor.vulkan.ring import Ring, run_in_slot
from gpu_executor.vulkan.slot import Slot
from gpu_executor.vulkan.slot_pool import SlotKey, SlotPool
from gpu_executor.vulkan.timeline import Timeline
from gpu_executor.vulkan.vulkan_stats import Stats

log = logging.getLogger("gpu_executor.vulkan")


def _are_on_device(arrays: Sequence[Any]) -> bool:
    """Whether any array is a device array."""
    for array in arrays:  # noqa: SIM110 - on the path of every call, where any() takes twice as long
        if isinstance(array, DeviceArray):
            return True
    return False


class Closeable(Protocol):
    """An object with `close()`."""

    def close(self) -> None: ...


class Session:
    """Opens a device at once, runs calls from any thread, frees everything at `close()`."""

    def __init__(
        self, settings: Settings, device: str | int | None = None, *, keep: bool = True
    ) -> None:
        """`keep=False` sizes everything for a single call and reads nothing from the disk."""
        self.settings = settings
        self.closed = self.forked = False  # forked: in a child process, which cannot use it
        self.streams: weakref.WeakSet[Closeable] = weakref.WeakSet()
        """Open streams. A stream may hold slots while no thread iterates it."""
        self.dropped_streams: deque[Closeable] = deque()
        """What is left of streams that were dropped without `close()`; the next call closes it."""
        self._iterating: defaultdict[int, int] = defaultdict(int)
        """How many streams a thread iterates, by its id: a stream may read another one."""
        self._close_deferred, self._stream_slots = False, 0
        """Whether a stream closes the session when it ends; slots that open streams hold."""
        self.profile: Profile | None = None
        self._profiling, self._counting = threading.Lock(), threading.Lock()
        self._record = StageCounters()
        """Calls on device arrays are counted here, by one thread at a time; slots have their own
        records."""
        with self._record.stage("setup"), contextlib.ExitStack() as opened:
            self._open_device(settings.device if device is None else device)
            opened.callback(self._device.close)
            self._pipeline_files = PipelineFiles(self._device, settings.cache_dir if keep else None)
            self._pipelines = PipelineCache(
                self._device,
                self._pipeline_files,
                spirv_val=settings.spirv_val,
                quick_forms=settings.quick_pipelines,
            )
            opened.callback(self._pipelines.close)
            self._idle_memory = IdleMemory(settings.idle_memory)
            self._memory = MemoryPool(
                self._device,
                limit=settings.memory_limit,
                idle=self._idle_memory,
                exact_blocks=not keep,
            )
            opened.callback(self._memory.close)
            self.mapped = MappedArrays(self._memory)
            self._descriptors = DescriptorPools(self._device)
            opened.callback(self._descriptors.close)
            self.resources = self._make_resources(opened)
            self._recycled = RecycledResults(self._memory, self.mapped, self.info)
            opened.callback(self._recycled.clear)
            self.device_memory = DeviceMemory(
                self.resources,
                self.mapped,
                self._recycled,
                self._idle_memory,
                TrialFile(settings.cache_dir if keep else None, self.info),
            )
            opened.callback(self.device_memory.close)
            self._memory.reclaim = self._release_unused
            self._range_finder = BufferRangeFinder(self.info, self.mapped, self._recycled)
            self._slot_pool = self._make_slot_pool()
            self.call_preparer = CallPreparer(
                self.info, settings, self._slot_pool, self._calibrate_if_idle
            )
            self._calibration_dir = settings.cache_dir if keep and settings.calibrate else None
            """Where a calibration is stored; None: do not calibrate without being asked."""
            self._calibrating = threading.Lock()
            if self._calibration_dir is not None:
                self._use_calibration(self._read_calibration(self._calibration_dir))
            opened.callback(self._slot_pool.close)
            self._opened = opened.pop_all()
        register_fork_handler(self._disown_after_fork)

    def prepare(
        self,
        kernel: Kernel,
        arrays: Sequence[AnyArray],
        device_local: bool | None,
        *,
        out_shape: Any = None,
    ) -> PreparedCall:
        """Prepare a call on these NumPy arrays."""
        if self.closed or self.dropped_streams:
            self.check_open()
        profiled = self.profile is not None
        return self.call_preparer.prepare_single(
            kernel, arrays, device_local, profiled=profiled, out_shape=out_shape
        )

    def prepare_batch(self, calls: Sequence[Call], options: RunOptions) -> PreparedCall:
        """Prepare a batch of calls, none of them empty."""
        in_place = self.mapped.any and None not in self.mapped.find_all(calls[0].inputs)
        profiled = self.profile is not None
        return self.call_preparer.prepare_batch(
            calls, options, in_place=in_place, profiled=profiled
        )

    def explain(
        self,
        kernel: Kernel,
        arrays: Sequence[Any],
        device_local: bool | None,
        *,
        params: Any = None,
        out_shape: Any = None,
    ) -> CallPlan:
        """Return the plan that `run` follows for these arrays."""
        arrays = as_arrays(kernel, arrays)
        if _are_on_device(arrays):
            self.check_open()
            signature = self.call_preparer.signatures.get(kernel, arrays, out_shape)
            return self.call_preparer.plan_on_device(signature)
        prepared = self.prepare(kernel, arrays, device_local, out_shape=out_shape)
        if prepared.plan.slots > 1:
            call = prepared.signature.make_call(arrays, params)
            prepared = self.prepare_batch([call], RunOptions(device_local))
        return prepared.plan

    def check_open(self) -> None:
        """Raise `ClosedError` if the session is closed or belongs to the parent process."""
        if self.forked:
            raise_forked()
        self._close_dropped_streams()
        if self.closed:
            raise ClosedError("the backend is closed; open another one")

    def _close_dropped_streams(self) -> None:
        while self.dropped_streams:
            with contextlib.suppress(IndexError):  # another thread was faster
                self.dropped_streams.popleft().close()

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike) -> Array:
        """Make a mapped array; idle slots are closed for it where memory is short."""
        self.check_open()
        with contextlib.suppress(OutOfMemoryError):
            return self.mapped.empty(shape, dtype)
        self.trim()
        return self.mapped.empty(shape, dtype)

    def run(
        self,
        kernel: Kernel,
        arrays: Sequence[Any],
        device_local: bool | None,
        out: Any = None,
        *,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Check, plan and run a call.

        The results go to `out`, to new NumPy arrays, or to device arrays: if any array is one, or
        with `keep`.
        """
        arrays = as_arrays(kernel, arrays)
        if keep or _are_on_device(arrays) or _are_on_device(list_outputs(out)):
            return self._run_on_device(kernel, arrays, out, keep, params, out_shape)
        prepared = self.prepare(kernel, arrays, device_local, out_shape=out_shape)
        if prepared.nbytes > self._idle_memory.largest_call:
            self._idle_memory.note_call(prepared.nbytes)
        signature, chunks = prepared.signature, prepared.chunks
        call = signature.make_call(arrays, params)
        if call.grid is not None:
            chunks = split_call(prepared.plan, signature, self.info, call.grid)
        if out is not None:
            call.use_outputs(out)
        if signature.count == 0:
            call.make_outputs()
            return call.result()
        if prepared.plan.slots > 1:
            prepared = self.prepare_batch([call], RunOptions(device_local))
            self.run_to_end([call], prepared)
            return call.result()
        recycled = self._range_finder.recycle_results(call) if prepared.recycles_results else ()
        if self.mapped.any:
            call.buffer_ranges = self._range_finder.find_ranges(call, prepared.plan, recycled)
        try:
            slot = self._slot_pool.take(prepared.slot_key)
        except OutOfMemoryError:
            self.run_to_end([call], prepared)  # with smaller chunks or fewer slots
            return call.result()
        slot.profile = self.profile
        try:
            run_in_slot(slot, call, chunks)
            slot.record.calls += 1
            slot.record.elements += signature.count
        finally:
            self._slot_pool.put_back(prepared.slot_key, slot)
        return call.result()

    def _run_on_device(
        self,
        kernel: Kernel,
        arrays: Sequence[Any],
        out: Any,
        keep: bool | None,
        params: Any,
        out_shape: Any,
    ) -> Any:
        """Submit a call to the command stream; wait only for results that go to the host."""
        self.check_open()
        signature = self.call_preparer.signatures.get(kernel, arrays, out_shape)
        call = signature.make_call(arrays, params)
        if out is not None:
            check_keep(kernel, keep, out)
            call.use_outputs(out, on_device=True)
        result = self.submit_call(call)
        return call.fetch_results() if keep is False else result

    def submit_call(self, call: Call) -> Any:
        """Submit a call to the command stream and return its results (`StepDevice.run_call`)."""
        signature = call.signature
        self.device_memory.run_call(call, self.call_preparer.plan_on_device(signature))
        with self._counting:
            self._record.calls += 1
            self._record.elements += signature.count
            self._record.chunks += 1
        return call.result()

    def run_to_end(self, calls: Sequence[Call], prepared: PreparedCall) -> None:
        """Run the calls of a batch in order.

        After an interrupt the generator is closed here, and not by the garbage collector, which may
        find it while a thread holds a lock that closing it needs.
        """
        results = BatchResults(self._recycled, calls)
        self._idle_memory.note_call(
            prepared.plan.slots * prepared.slot_key.nbytes + results.bytes_left
        )
        running = self._run_jobs(calls, prepared, results.make_outputs)
        with contextlib.closing(running):
            for _ in running:
                pass

    def _run_jobs(
        self,
        calls: Sequence[Call],
        prepared: PreparedCall,
        make_outputs: Callable[[Call], None],
    ) -> Generator[Call, None, None]:
        """Run the calls of a batch in order; yields each when it is done."""
        if prepared.recycles_results:
            results = sum(count_recycled_bytes(call.signature) for call in calls)
            slots = prepared.plan.slots * prepared.slot_key.nbytes
            self._idle_memory.note_call(slots + results)
        if prepared.signature.kernel.split == "elements":
            yield from self.run_stream(calls, prepared, make_outputs=make_outputs)
            return
        # The slots of a kernel that is not chunked fit calls of one signature only.
        for signature, alike in itertools.groupby(calls, key=lambda call: call.signature):
            whole = self.call_preparer.prepare_whole(prepared, signature)
            yield from self.run_stream(alike, whole, make_outputs=make_outputs)

    def run_stream(
        self,
        calls: Iterable[Call],
        prepared: PreparedCall,
        check_start: Callable[[Call], None] | None = None,
        make_outputs: Callable[[Call], None] = Call.make_outputs,
    ) -> Generator[Call, None, None]:
        """Run calls as they come; yields each when it is done.

        No call may have larger chunks than `prepared`. `check_start` is called before a call
        starts, when the calls before it that had to be done first were yielded. `make_outputs`
        makes the arrays of results that are not recycled.
        """
        self._idle_memory.note_call(
            prepared.nbytes + (prepared.plan.slots - 1) * count_recycled_bytes(prepared.signature)
        )
        prepared, slots = self._take_slots(prepared)
        signature, plan = prepared.signature, prepared.plan
        if check_start is not None:
            self._stream_slots += len(slots)
        try:
            ring = Ring(slots, self.resources.copy_threads, make_outputs)
            try:
                for call in calls:
                    chunks = (
                        prepared.chunks
                        if call.signature is signature and call.grid is None
                        else split_call(plan, call.signature, self.info, call.grid)
                    )
                    recycled = (
                        self._range_finder.recycle_results(call)
                        if can_recycle_results(call.signature)
                        else ()
                    )
                    if self.mapped.any:
                        call.buffer_ranges = self._range_finder.find_ranges(call, plan, recycled)
                    if check_start is not None:
                        yield from ring.free_slot()
                        check_start(call)
                    slots[0].record.calls += 1
                    slots[0].record.elements += call.signature.count
                    yield from ring.feed(call, chunks)
                yield from ring.flush()
            except BaseException:
                if not self.forked:
                    ring.abandon()
                raise
        finally:
            if check_start is not None:
                self._stream_slots -= len(slots)
            # In reverse, so that they are taken in the same order again and their recordings match.
            for slot in reversed(() if self.forked else slots):
                self._slot_pool.put_back(prepared.slot_key, slot)

    def _take_slots(self, prepared: PreparedCall) -> tuple[PreparedCall, list[Slot]]:
        """Take as many slots as the plan says, or as memory allows; halve the chunk if necessary.

        A kernel that is not chunked needs its first slot at full size.
        """
        while True:
            try:
                slots = [self._slot_pool.take(prepared.slot_key)]
                break
            except OutOfMemoryError:
                whole = prepared.signature.kernel.split == "whole"
                smaller = None if whole else shrink_plan(prepared.plan)
                if smaller is None:
                    raise
                prepared = self.call_preparer.replace_plan(prepared, prepared.signature, smaller)
                self._record.shrunk += 1
        slot_key, wanted = prepared.slot_key, prepared.plan.slots
        try:
            while len(slots) < wanted and self._leaves_room(slot_key, len(slots) + 1):
                slot = self._slot_pool.try_take(slot_key)
                if slot is None:
                    break
                slots.append(slot)
        except BaseException:
            for slot in slots:
                self._slot_pool.put_back(slot_key, slot)
            raise
        if len(slots) < wanted:
            self._record.shrunk += 1
        for slot in slots:
            slot.profile = self.profile
        return prepared, slots

    def _count_blocked_slots(self) -> int:
        """Return how many slots are put back only after this thread has gone on: those of streams,
        unless another thread iterates one.
        """
        return 0 if self._iterating.keys() - {get_ident()} else self._stream_slots

    def _leaves_room(self, slot_key: SlotKey, slots: int) -> bool:
        """Whether that many slots leave half of the memory limit to calls during a stream."""
        limit, layout = self.settings.memory_limit, slot_key.layout
        if limit is None:
            return True
        copies = 2 if layout.path == "device-local" else 1
        return 2 * slots * copies * sum(operand.nbytes for operand in layout.operands) <= limit

    def calibrate(self) -> Calibration:
        """Measure the device, store the calibration and plan with it from now on."""
        with self._calibrating:
            calibration = measure(self.resources, self.mapped, self.device_memory, self.info)
        if self.settings.cache_dir is not None:
            write_calibration(self.settings.cache_dir, self.info, calibration)
        self._use_calibration(calibration)
        return calibration

    def _calibrate_if_idle(self) -> None:
        """Calibrate before the first plan that needs it, unless other calls are running."""
        if self._calibration_dir is None or not self._calibrating.acquire(blocking=False):
            return
        try:
            before = self._slot_pool.stats()
            if before.in_use or self.call_preparer.calibration is not None:
                return
            calibration = measure(self.resources, self.mapped, self.device_memory, self.info)
            if self._slot_pool.stats() == before:  # otherwise calls came meanwhile: try again later
                write_calibration(self._calibration_dir, self.info, calibration)
                self._use_calibration(calibration)
        except OutOfMemoryError as error:
            self._calibration_dir = None
            log.warning("the device was not calibrated; plans use fixed thresholds: %s", error)
        finally:
            self._calibrating.release()

    def _read_calibration(self, folder: Path) -> Calibration | None:
        """The stored calibration; None if there is none, or if it was measured while the host could
        write to device memory, which it cannot now."""
        found, purpose = read_calibration(folder, self.info), self._memory.input_purpose
        if found is not None and found.direct_fill and purpose is not Purpose.INPUT:
            return None
        return found

    def _use_calibration(self, calibration: Calibration | None) -> None:
        self.call_preparer.calibration = calibration
        if calibration is not None:
            copy_threads = self.resources.copy_threads
            copy_threads.threads = min(copy_threads.max_threads, calibration.choose_threads())
            if not calibration.direct_fill:
                self._memory.input_purpose = Purpose.UPLOAD

    def start_profile(self, trace: TraceFile) -> Profile:
        """Record spans of all calls from now on, until the profile's `with` ends."""
        if "hostQueryReset" not in self.info.features:
            raise DeviceLacksError(
                f"{self.info.name} cannot be profiled: it lacks the feature hostQueryReset"
            )
        profile = Profile(self._device, trace, lambda: self._end_profile(itself))
        itself = weakref.ref(profile)  # a strong reference would be a cycle that keeps all spans
        with self._profiling:
            if self.profile is not None:
                raise GpuError(
                    f"{self.info.name} is being profiled already; end that profile first"
                )
            self.profile = profile
        return profile

    def _end_profile(self, profile: weakref.ref[Profile]) -> None:
        if self.profile is profile():  # otherwise it has ended already, and another one is active
            self.profile = None

    def trim(self) -> int:
        """Free idle slots, cached memory and empty blocks; return the number of bytes freed."""
        self._close_dropped_streams()
        before = self._memory.stats().bytes_held
        self.device_memory.exchange.collect()
        self.device_memory.release_completed()
        self._idle_memory.evict(lambda: False)
        self._memory.trim()
        return max(before - self._memory.stats().bytes_held, 0)

    def _release_unused(self) -> None:
        """Release cached memory that nobody uses."""
        self.device_memory.release_completed()
        self._recycled.clear()

    def _is_within_budget(self) -> bool:
        """Return whether the idle memory is within its limit."""
        busy = self._slot_pool.list_allocations_in_use()
        return self._memory.is_within(self._idle_memory.limit, busy)

    def stats(self) -> Stats:
        """Return the counters of this session."""
        if not self.forked:
            self._close_dropped_streams()
        self.device_memory.release_completed()
        self._idle_memory.settle_if_exceeded()  # the caller may have dropped results or arrays
        by_path: defaultdict[str, int] = defaultdict(int)
        records = self._slot_pool.list_counters()
        for path, record in records:
            by_path[path] += record.calls
        if self._record.calls:
            by_path["device-resident"] += self._record.calls
        total = sum_counters([self._record, *(record for _, record in records)])
        return Stats(
            device=self.info.name,
            calls=total.calls,
            elements=total.elements,
            chunks=total.chunks,
            dispatches=self.device_memory.dispatches,
            calls_by_path=dict(sorted(by_path.items())),
            seconds_by_stage=total.seconds(),
            pipelines=self._pipelines.stats(),
            disk_cache=self._pipeline_files.stats(),
            slots=self._slot_pool.stats(),
            recordings=total.recordings,
            shrunk=total.shrunk,
            memory=self._memory.stats(),
            bytes_held=self._memory.stats().bytes_held,
            memory_use=self._count_memory(),
            descriptors=self._descriptors.stats(),
        )

    def _count_memory(self) -> MemoryUse:
        busy = self._slot_pool.list_allocations_in_use()
        idle_slots, idle_results = self._slot_pool.bytes_idle, self._recycled.count_idle()
        owned, fragments, free = self._memory.count_by_owner(busy)
        return MemoryUse(
            in_use={
                "arrays": owned["array"] + max(owned["result"] - idle_results, 0),
                "device arrays": owned["device array"],
                "slots": max(owned["slot"] - idle_slots, 0),
                "staging": owned["staging"],
            },
            idle={
                "slots": idle_slots,
                "results": idle_results,
                "tables": owned["table"],
                "free blocks": free,
            },
            fragments=fragments,
            idle_limit=self._idle_memory.limit,
            largest_call=self._idle_memory.largest_call,
        )

    def begin_iteration(self) -> None:
        """Note that this thread iterates a stream, which reads iterables of the user's."""
        self._iterating[get_ident()] += 1

    def end_iteration(self) -> None:
        """Note that this thread has left a stream; finish a `close` that came from inside it."""
        thread = get_ident()
        self._iterating[thread] -= 1
        if not self._iterating[thread]:
            del self._iterating[thread]
            if self._close_deferred:
                self.close()

    def close(self) -> None:
        """Wait for running calls and free everything. Closing twice does nothing.

        Inside an iterable that a stream reads, this returns at once, and the stream closes the
        session when it ends: it holds slots, and waiting for them here would take forever.
        """
        self.closed = True
        if self.forked:
            return
        if get_ident() in self._iterating:
            self._close_deferred = True
            return
        for stream in list(self.streams):
            # A stream that another thread iterates cannot be closed from here; it ends by itself.
            with contextlib.suppress(GpuError):
                stream.close()
        self._close_dropped_streams()
        with self._calibrating:
            self._opened.close()

    def _disown_after_fork(self) -> None:
        self.closed = self.forked = True

    def _open_device(self, wanted: str | int | None) -> None:
        self.instance = open_instance(validation=self.settings.validation)
        with contextlib.ExitStack() as undo:
            undo.callback(self.instance.close)
            handle, self.info = choose_device(self.instance.devices(), wanted)
            self._device = Device(handle, self.info, self.instance.close)
            undo.pop_all()  # from here on the device closes the instance

    def _make_resources(self, opened: contextlib.ExitStack) -> Resources:
        device, queues = self._device, self._device.queues

        def timeline(address: QueueAddress) -> Timeline:
            made = Timeline(device, address)
            opened.callback(made.close)
            return made

        compute = timeline(queues.compute)
        parallel_compute = tuple(
            compute if address == queues.compute else timeline(address)
            for address in queues.parallel_compute
        )
        upload = None if queues.upload is None else timeline(queues.upload)
        download = upload
        if queues.download is not None and queues.download != queues.upload:
            download = timeline(queues.download)
        copy_threads = CopyThreads()
        opened.callback(copy_threads.close)
        return Resources(
            device,
            self._memory,
            self._pipelines,
            self._descriptors,
            compute,
            parallel_compute,
            upload,
            download,
            copy_threads,
        )

    def _make_slot_pool(self) -> SlotPool:
        """Make the slot pool, and connect everything that keeps memory to the budget."""
        made = SlotPool(self.resources, self._idle_memory)
        made.count_blocked = self._count_blocked_slots
        self._idle_memory.fits = self._is_within_budget
        self._idle_memory.may_exceed = made.exceeds_budget
        for holder in (made, self._recycled, self.device_memory, self._memory):
            self._idle_memory.add_holder(holder.list_idle)
        return made
