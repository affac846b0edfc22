"""WgpuExecutor: kernels on NumPy arrays through WebGPU, with caches by bucket and by exact size."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
import weakref
from collections.abc import Sequence
from typing import Any

from gpu_executor.call import Array
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.forking import LEFT_TO_PARENT, tell_in_child
from gpu_executor.forms import Forms
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load, names
from gpu_executor.settings import Settings
from gpu_executor.webgpu.borders import Borders
from gpu_executor.webgpu.buckets import BucketStats
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.cutting import Cutting
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.in_use import InUse
from gpu_executor.webgpu.kept import Kept, keep, kept_path, read_kept
from gpu_executor.webgpu.native_queue import open_queue
from gpu_executor.webgpu.programs import Programs
from gpu_executor.webgpu.results import Results
from gpu_executor.webgpu.runs import Runs
from gpu_executor.webgpu.stats import WgpuStats


class WgpuExecutor:
    """WebGPU held open. Use it with `with`, or `close()` it; calls may come from any thread.

    `device` is an index or a part of the adapter's name, else what GPU_DEVICE says. With
    `adaptive=True` the borders of buckets follow the sizes that come. `private=False` waits through
    wgpu-py's public promises alone. `settings` replaces what is read from the environment.
    """

    def __init__(
        self,
        device: str | int | None = None,
        *,
        adaptive: bool = False,
        private: bool = True,
        settings: Settings | None = None,
    ) -> None:
        settings = settings or Settings.from_environment()
        self._device = WebGpuDevice(settings.device if device is None else device)
        self._queue = open_queue(self._device, private=private)
        self._pool = BufferPool(
            self._device.device,
            largest=self._device.most_in_buffer,
            limit=settings.memory_limit,
        )
        self._programs = Programs(self._device)
        folder = settings.cache_dir
        self._kept_at = None if folder is None else kept_path(folder, self._device.name)
        kept = Kept() if self._kept_at is None else read_kept(self._kept_at)
        self._kept = kept
        self._borders = Borders(adaptive=adaptive, known=kept.borders if adaptive else ())
        maps_inputs = self._queue.maps_inputs
        self._cutting = Cutting(self._device, self._pool, self._borders, maps_inputs=maps_inputs)
        self._runs = Runs(self._device, self._pool, self._programs, self._queue, self._cutting)
        self._pool.reclaim = self._runs.reclaim
        self._use = InUse(self._device)
        self._results = Results()
        self._forms = Forms(on_card=False)
        self._finalizer = weakref.finalize(self, self._device.close)
        tell_in_child(self._leave_to_parent)

    @property
    def device_name(self) -> str:
        """The adapter's name."""
        return self._device.name

    def run(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """Run a kernel on NumPy arrays; returns its output, or a tuple of several."""
        call = self._forms.form(kernel, arrays).call(arrays)
        if out is not None:
            call.use_outputs(out)
        with self._use:
            self._results.make(call)
            if call.form.count:
                self._runs.run_single(call)
        return call.result()

    def run_field_add(self, a: Array, b: Array) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus."""
        result: Array = self.run(load("bls12_381_fq_add"), a, b)
        return result

    def run_batch(
        self, kernel: Kernel, jobs: Sequence[Sequence[Array]], *, out: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order.

        Jobs are grouped by bucket, and each group is one submission: the results of the first
        groups are read while the later ones are computed.
        """
        if out is not None and len(out) != len(jobs):
            raise ArgumentTypeError(f"out has {len(out)} entries for {len(jobs)} jobs")
        calls = [
            self._forms.job(kernel, job, index, None if out is None else out[index])
            for index, job in enumerate(jobs)
        ]
        with self._use:
            for call in calls:
                self._results.make(call)
            self._runs.run_calls([call for call in calls if call.form.count])
        return [call.result() for call in calls]

    def warm_up(self, kernel: Kernel | None = None, sizes: Sequence[int] = ()) -> None:
        """Compile for calls of so many elements, and make a buffer set for each.

        Without a kernel: for those of this package's kernels that earlier processes used.
        """
        with self._use:
            if kernel is not None:
                self._warm_up(kernel, sizes)
                return
            for name, buckets in self._kept.used.items():
                if name in names():
                    self._warm_up(load(name), buckets)

    def _warm_up(self, kernel: Kernel, sizes: Sequence[int]) -> None:
        buckets = {self._cutting.bucket(kernel, size) for size in sizes}
        for bucket in sorted(buckets - {0}):  # where not even one element is allowed
            self._programs.warm_up(kernel, bucket)
            self._runs.warm_up(kernel, bucket)

    def stats(self) -> WgpuStats:
        """Calls, caches and what they hold."""
        programs, runs = self._programs.all(), self._runs
        return WgpuStats(
            device=self._device.name,
            backend=self._device.backend,
            calls=runs.calls,
            elements=runs.elements,
            tasks=runs.tasks,
            submissions=runs.submissions,
            pipelines=len(programs),
            compile_seconds=sum(program.seconds for program in programs),
            buffer_sets=runs.sets,
            exact_hits=runs.exact.hits,
            exact_entries=len(runs.exact),
            bucket_sizes=tuple(runs.buckets.sizes()),
            buckets=tuple(self.bucket_cache_stats()),
            bucket_evictions=runs.buckets.evictions,
            borders=tuple(self._borders.own),
            padding=self._borders.waste(),
            pool=self._pool.stats(),
        )

    def bucket_cache_stats(self) -> list[BucketStats]:
        """Per bucket: hits, misses, evictions, pipelines, compile time, bytes held."""
        found = []
        for kernel, stats in self._runs.buckets.stats():
            program = self._programs.of(kernel, stats.bucket)
            made = int(program is not None)
            seconds = 0.0 if program is None else program.seconds
            found.append(dataclasses.replace(stats, pipelines=made, compile_seconds=seconds))
        return found

    def print_stats(self) -> None:
        """Write the caches' state to standard error."""
        print(self.stats(), file=sys.stderr)

    def close(self) -> None:
        """Free everything. Twice is fine."""
        if self._use is LEFT_TO_PARENT:
            return
        if self._use.end():
            if self._kept_at is not None:
                keep(self._kept_at, self._to_keep())
            self._programs.close()
            self._runs.clear()
            self._results.clear()
            self._pool.clear()
        self._finalizer()

    def trim(self) -> int:
        """Free what no running call needs; returns the bytes of buffers given back."""
        with self._use:
            self._runs.clear()
            self._results.clear()
            nbytes = self._pool.stats().bytes_idle
            self._pool.clear()
        return nbytes

    def _leave_to_parent(self) -> None:
        # Collected, wgpu-py's objects would call the library, and wait there for the parent's
        # threads: one reference too many, and they never are.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(vars(self).copy()))
        self._finalizer.detach()
        self._use = self._programs = self._runs = LEFT_TO_PARENT

    def _to_keep(self) -> Kept:
        """What was kept before, and what was used since."""
        borders = self._borders.own if self._borders.adaptive else self._kept.borders
        used = dict(self._kept.used)
        for name, sizes in self._runs.buckets.used().items():
            used[name] = sorted({*used.get(name, ()), *sizes})
        return Kept(borders, used)

    def __enter__(self) -> WgpuExecutor:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<WgpuExecutor on {self._device.name}, {state}>"
