"""WgpuExecutor: runs kernels on NumPy arrays through WebGPU, with caches for everything that is
expensive to create."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import threading
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.idle_memory import IdleMemory, MemoryUse
from gpu_executor.backend import ArrayImport, DeviceArrays, PlainArrays, refuse
from gpu_executor.calls.arguments import check_is_kernel, collect_jobs, iterate, parse_count
from gpu_executor.calls.call import (
    Array,
    Call,
    Signature,
    SignatureCache,
    arrays_to_explain,
    as_arrays,
    check_keep,
    iterate_params,
    name_job,
)
from gpu_executor.calls.streams import SequentialStream, StreamJob
from gpu_executor.common.fork import DISOWNED, register_fork_handler
from gpu_executor.device_info import DeviceInfo
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels import load, names
from gpu_executor.plan import CallPlan, Plan
from gpu_executor.plan.plan import plan_on_device
from gpu_executor.settings import Settings, resolve_settings
from gpu_executor.telemetry.profile import StageProfile
from gpu_executor.telemetry.spans import TraceFile
from gpu_executor.webgpu.active_calls import ActiveCalls
from gpu_executor.webgpu.boundaries import (
    BucketBoundaries,
    BucketHistory,
    history_path,
    read_history,
    write_history,
)
from gpu_executor.webgpu.buffer_pool import BufferPool
from gpu_executor.webgpu.chunking import ChunkPlanner
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.device_memory import WebGpuMemory
from gpu_executor.webgpu.native_queue import open_queue
from gpu_executor.webgpu.output_allocator import OutputAllocator
from gpu_executor.webgpu.pipelines import PipelineCompiler
from gpu_executor.webgpu.scheduler import TaskScheduler
from gpu_executor.webgpu.spirv_pipelines import is_readable
from gpu_executor.webgpu.step_stream import StepStream
from gpu_executor.webgpu.wgpu_stats import BucketStats, WgpuStats

T = TypeVar("T")


class WgpuExecutor(DeviceArrays, PlainArrays):
    """Runs kernels on a WebGPU device that stays open. Calls may come from any thread. Use it in a
    `with` statement, or `close()` it.

    Args:
        device (str | int | None): The index of an adapter or a part of its name; None: that of the
            settings, or the best one.
        adaptive (bool): Whether the bucket boundaries follow the sizes of the calls.
        private (bool): False: only wgpu-py's public API is used.
        settings (Settings | None): None: those of the environment.

    Raises:
        NoDeviceError: There is no such adapter.
        MissingExtraError: wgpu-py is not installed.
    """

    name = "webgpu"

    def __init__(
        self,
        device: str | int | None = None,
        *,
        adaptive: bool = False,
        private: bool = True,
        settings: Settings | None = None,
    ) -> None:
        settings = resolve_settings(settings)
        self._device = WebGpuDevice(settings.device if device is None else device)
        self._queue = open_queue(self._device, private=private)
        self._pool = BufferPool(
            self._device.device,
            largest=self._device.max_buffer_bytes,
            limit=settings.memory_limit,
        )
        self._pipelines = PipelineCompiler(self._device)
        folder = settings.cache_dir
        self._history_path = None if folder is None else history_path(folder, self._device.name)
        self._history = BucketHistory()
        if self._history_path is not None:
            self._history = read_history(self._history_path)
        self._boundaries = BucketBoundaries(
            adaptive=adaptive, learned=self._history.boundaries if adaptive else ()
        )
        self._chunks = ChunkPlanner(
            self._device, self._pool, self._boundaries, maps_inputs=self._queue.maps_inputs
        )
        self._scheduler = TaskScheduler(
            self._device, self._pool, self._pipelines, self._queue, self._chunks
        )
        self._active = ActiveCalls(self._device)
        self._device_memory = WebGpuMemory(
            self._device,
            self._queue,
            self._pool,
            StepStream(self._device, self._queue, self._pipelines),
            self._active,
            self._note_call,
        )
        self._pool.reclaim = self._reclaim
        self._outputs = OutputAllocator()
        self._idle_memory = IdleMemory(settings.idle_memory)
        self._idle_memory.fits = self._destroy_idle_buffers
        for holder in (self._scheduler.buckets, self._scheduler.exact, self._outputs):
            self._idle_memory.add_holder(holder.list_idle)
        self._signatures = SignatureCache()
        self._finalizer = weakref.finalize(self, self._device.close)
        self._closing = threading.RLock()
        """Held while the executor is being closed: the device is closed last."""
        register_fork_handler(self._disown_after_fork)

    @property
    def device(self) -> DeviceInfo:
        """The open device. WebGPU reports neither its memory nor its queues."""
        return self._device.info

    @property
    def device_name(self) -> str:
        """The adapter's name."""
        return self._device.name

    def run(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        given = as_arrays(kernel, arrays)
        call = self._signatures.get(kernel, given, out_shape).make_call(given, params)
        if out is not None:
            check_keep(kernel, keep, out)
            call.use_outputs(out, on_device=True)
        return self._run_call(call, keep)

    def _run_call(self, call: Call, keep: bool | None) -> Any:
        if keep or call.touches_device():
            result = self._run_on_device(call)
            return call.fetch_results() if keep is False else result
        with self._active:
            nbytes = self._outputs.allocate(call)
            if call.signature.count:
                nbytes += self._scheduler.run_single(call)
            self._settle_idle_memory(nbytes)
        return call.result()

    def _run_on_device(self, call: Call) -> Any:
        """Submit a call on device arrays; wait only for results that go to the host."""
        self._check_open()
        self._device_memory.run_call(call, self._plan_on_device(call.signature))
        self._scheduler.count(1, call.signature.count)
        return call.result()

    def _plan_on_device(self, signature: Signature) -> CallPlan:
        kernel, sizes = signature.kernel, None
        if not is_readable(kernel):
            sizes = self._pipelines.tune(kernel, max(signature.invocations, 1))
        return plan_on_device(signature, self._device.info, sizes)

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on many jobs. Jobs are grouped by bucket, and each group is one submission.
        The results of the first groups are read while the device computes the later ones.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`, for all jobs.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.

        Returns:
            A list of one result per job, in order.
        """
        given, outs = collect_jobs(jobs, out)
        calls = [
            self._signatures.make_job_call(kernel, job, index, outs and outs[index], own, keep=keep)
            for index, (job, own) in enumerate(zip(given, iterate_params(params, len(given))))  # noqa: B905
        ]
        on_device = [call for call in calls if keep or call.touches_device()]
        for call in on_device:
            name_job(self._device_memory.check_owner, call)
        for call in on_device:
            name_job(self._run_on_device, call)
        if keep is False:
            for call in on_device:
                name_job(Call.fetch_results, call)
        if not on_device or len(on_device) < len(calls):
            others = [call for call in calls if not call.touches_device()]
            with self._active:
                nbytes = sum(self._outputs.allocate(call) for call in others)
                busy = [call for call in others if call.signature.count]
                nbytes += self._scheduler.run_calls(busy)
                self._settle_idle_memory(nbytes)
        return [call.result() for call in calls]

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> SequentialStream:
        """Run a kernel on jobs as they come, one after the other; yields results in order.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job; it may be infinite.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`, for all jobs.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.
        """

        def run(job: StreamJob) -> Any:
            self._check_open()
            index, arrays, target, own = job
            call = self._signatures.make_job_call(kernel, arrays, index, target, own, keep=keep)
            return name_job(lambda each: self._run_call(each, keep), call)

        self._check_open()
        return SequentialStream(run, jobs, out, params)

    def explain(
        self, kernel: Kernel, *arrays: npt.ArrayLike, params: Any = None, out_shape: Any = None
    ) -> Plan:
        """Return the chunks, bucket and work-groups of `run`. Print them for their reasons.

        Args:
            kernel (Kernel): The kernel.
            *arrays (array): The arguments of `run`, or one integer alone, a number of elements.
            params (dict | tuple): They change nothing here.
            out_shape (tuple | list): As in `run`.
        """
        self._check_open()
        given = arrays_to_explain(kernel, arrays)
        signature = self._signatures.get(kernel, given, out_shape)
        if any(isinstance(each, DeviceArray) for each in given):
            plan, readable = self._plan_on_device(signature), is_readable(kernel)
            code = self._pipelines.describe_code(kernel, spirv=readable)
            return dataclasses.replace(plan, reasons=(*plan.reasons, code))
        return self._scheduler.explain(signature)

    def profile(self, *, trace: str | Path | None = None) -> StageProfile:
        """Record the stages of all calls until the `with` ends: `stages()`, `save_trace(path)`. The
        stages are fill, compute and drain: WebGPU does not tell when the device copies.

        Args:
            trace (str | Path): The file to which the trace is written when the `with` ends.
        """
        self._check_open()
        return self._scheduler.profiles.start(TraceFile(trace))

    def prepare(self, kernel: Kernel | None = None, sizes: Sequence[int] = ()) -> None:
        """Compile a kernel, and make a buffer set for each size. Kernels with split="whole" are
        compiled only.

        Args:
            kernel (Kernel | None): The kernel. None: the package's kernels, with the sizes that
                earlier processes used; the cache folder has a list of them.
            sizes (list of int): The sizes of the calls to come, in elements.

        Raises:
            KernelError: The kernel has no WGSL, and is none of the package's.
        """
        if kernel is not None:
            check_is_kernel(kernel)
            if kernel.wgsl is None:
                self._pipelines.spirv.check(kernel)
        counts = [parse_count("prepare", size, least=1) for size in iterate("sizes", sizes)]
        with self._active:
            if kernel is not None:
                self._prepare(kernel, counts)
                return
            for name, buckets in self._history.used.items():
                if name in names():
                    self._prepare(load(name), buckets)

    def _prepare(self, kernel: Kernel, sizes: Sequence[int]) -> None:
        if kernel.split == "whole":  # the shapes of a call determine the buffers
            for size in sizes:
                self._pipelines.compile(kernel, size)
            return
        buckets = {self._chunks.find_bucket(kernel, size) for size in sizes}
        # A bucket of 0 elements: the memory limit does not allow even one element.
        for bucket in sorted(buckets - {0}):
            self._pipelines.compile(kernel, bucket)
            self._settle_idle_memory(self._scheduler.prepare(kernel, bucket))

    @property
    def array_device(self) -> WebGpuMemory:
        """What holds the device arrays."""
        return self._device_memory

    def import_array(self, array: Array) -> ArrayImport:
        raise refuse("import_array", self.name)

    def _empty_exportable(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        raise refuse("export=True", self.name)

    def wait_for_stream(self, stream: Any) -> None:
        raise refuse("wait_for_stream", self.name)

    def make_stream_wait(self, stream: Any) -> None:
        raise refuse("make_stream_wait", self.name)

    def _reclaim(self) -> bool:
        """Release memory to the pool; returns whether there was any."""
        return self._device_memory.give_back() or self._scheduler.reclaim()

    def _note_call(self, nbytes: int) -> None:
        if nbytes > self._idle_memory.largest_call:
            self._idle_memory.note_call(nbytes)

    def _settle_idle_memory(self, nbytes: int) -> None:
        """After a call that needed `nbytes` at once: release idle memory beyond the budget."""
        budget = self._idle_memory
        if nbytes > budget.largest_call:
            budget.note_call(nbytes)
        if self._count_idle_bytes() > budget.limit:
            budget.settle()

    def _count_idle_bytes(self) -> int:
        """Return the idle bytes, with those of results that the caller still holds."""
        caches = self._scheduler.buckets.bytes_idle + self._scheduler.exact.bytes_idle
        return caches + self._outputs.bytes_recycled + self._pool.bytes_idle

    def _destroy_idle_buffers(self) -> bool:
        """Destroy idle buffers until the idle memory is within its limit; return whether it is."""
        beyond = self._count_idle_bytes() - self._idle_memory.limit
        if beyond > 0:
            self._pool.destroy_idle(max(self._pool.bytes_idle - beyond, 0))
        return self._count_idle_bytes() <= self._idle_memory.limit

    def stats(self) -> WgpuStats:
        """Return the counters of calls and caches, and the contents of the caches."""
        pipelines, scheduler = self._pipelines.list_compiled(), self._scheduler
        record, pool = scheduler.read_counters(), self._pool.stats()
        record.pipeline += round(1e9 * sum(pipeline.compile_seconds for pipeline in pipelines))
        return WgpuStats(
            device=self._device.name,
            backend=self._device.backend,
            calls=record.calls,
            elements=record.elements,
            chunks=record.chunks,
            dispatches=self._device_memory.stream.dispatches,
            seconds_by_stage=record.seconds(),
            bytes_held=pool.bytes_idle + pool.bytes_in_use,
            submissions=scheduler.submissions + self._device_memory.stream.submissions,
            pipelines=len(pipelines) + len(self._pipelines.spirv),
            integers=self._pipelines.spirv.form,
            buffer_sets=scheduler.sets_made,
            exact_hits=scheduler.exact.hits,
            exact_entries=len(scheduler.exact),
            bucket_sizes=tuple(scheduler.buckets.sizes()),
            buckets=tuple(self.bucket_cache_stats()),
            bucket_evictions=scheduler.buckets.evictions,
            borders=tuple(self._boundaries.learned),
            padding=self._boundaries.measure_padding(),
            pool=pool,
            memory_use=self._count_memory(),
        )

    def _count_memory(self) -> MemoryUse:
        buckets, exact = self._scheduler.buckets.bytes_idle, self._scheduler.exact.bytes_idle
        self._device_memory.give_back()
        pool, arrays = self._pool.stats(), self._device_memory.bytes_in_use
        return MemoryUse(
            in_use={
                "buffer sets": max(pool.bytes_in_use - buckets - exact - arrays, 0),
                "device arrays": arrays,
            },
            idle={
                "buckets": buckets,
                "exact sizes": exact,
                "buffers": pool.bytes_idle,
                "results": self._outputs.count_idle(),
            },
            fragments=0,
            idle_limit=self._idle_memory.limit,
            largest_call=self._idle_memory.largest_call,
        )

    def bucket_cache_stats(self) -> list[BucketStats]:
        """Return hits, misses, evictions, pipelines, compile time and bytes held of each bucket."""
        found = []
        for kernel, stats in self._scheduler.buckets.stats():
            pipeline = self._pipelines.find(kernel, stats.bucket)
            compiled = int(pipeline is not None)
            seconds = 0.0 if pipeline is None else pipeline.compile_seconds
            found.append(dataclasses.replace(stats, pipelines=compiled, compile_seconds=seconds))
        return found

    def print_stats(self) -> None:
        """Print the state of the caches to standard error."""
        print(self.stats(), file=sys.stderr)

    def close(self) -> None:
        """Wait for the calls that are running, then free everything. May be called again."""
        if self._active is DISOWNED:
            return
        with self._closing:
            if self._active.close():
                if self._history_path is not None:
                    write_history(self._history_path, self._merge_history())
                self._device_memory.close()
                self._pipelines.close()
                self._scheduler.clear()
                self._outputs.clear()
                self._pool.clear()
            self._finalizer()

    def trim(self) -> int:
        """Free all buffers that no running call uses; returns how many bytes were freed."""
        with self._active:
            self._device_memory.trim()
            self._scheduler.clear()
            self._outputs.clear()
            nbytes = self._pool.stats().bytes_idle
            self._pool.clear()
        return nbytes

    def _disown_after_fork(self) -> None:
        # When wgpu-py's objects are garbage-collected, they call the library, which would wait for
        # threads that exist only in the parent. An extra reference keeps them from ever being
        # collected.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(vars(self).copy()))
        self._finalizer.detach()
        self._device_memory.disown()
        self._active = self._pipelines = self._scheduler = DISOWNED

    def _merge_history(self) -> BucketHistory:
        """Return the saved history, with the boundaries and buckets of this executor added."""
        boundaries = self._history.boundaries
        if self._boundaries.adaptive:
            boundaries = self._boundaries.learned
        used = dict(self._history.used)
        for name, sizes in self._scheduler.buckets.sizes_by_kernel().items():
            used[name] = sorted({*used.get(name, ()), *sizes})
        return BucketHistory(boundaries, used)

    def _check_open(self) -> None:
        with self._active:
            pass

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<WgpuExecutor on {self._device.name}, {state}>"
