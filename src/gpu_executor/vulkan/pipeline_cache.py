"""The pipelines of a device: an LRU cache, compilation by several threads and in the background.

A pipeline is created at its first use and cached under the SHA-256 of its SPIR-V and its
specialization constants; on disk it has a file of its own (`disk_cache.py`). Nothing waits for the
compilation of another pipeline: whoever needs one compiles it, or waits for the thread that does.

    compile_ahead -> compile threads -+-> cache <- acquire
                                      |
                     quick form now, usual form later

A driver takes seconds for some kernels of this package (`compiles_slowly`). Where no file has the
usual form of such a pipeline, its quick form is compiled at once, and the usual form in the
background. It replaces the quick one (`Pipeline.is_replaced`): what is recorded from then on uses
it. Both compute the same.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from gpu_executor.common.cpu_cores import count_cores
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import LruCache
from gpu_executor.errors import GpuError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.modules import compiles_slowly
from gpu_executor.settings import SpirvVal
from gpu_executor.steps.dispatch_sizes import choose_constants
from gpu_executor.vulkan.device import Device
from gpu_executor.vulkan.device_checks import check_shared_memory, check_work_group
from gpu_executor.vulkan.disk_cache import PipelineFiles
from gpu_executor.vulkan.pipeline import (
    Constants,
    Key,
    Pipeline,
    PipelineCode,
    destroy_pipeline,
    encode_specialization,
    make_key,
    make_pipeline,
    prepare_code,
    to_quick_form,
)

MAX_PIPELINES = 512
"""Pipelines that no slot and no cached dispatch uses count too. Programs that use many fields and
sizes need hundreds: with 64, the tests of fields compiled 1,659 pipelines, of which 874 were
different."""
MAX_COMPILE_THREADS = 16
"""Compilations at a time. Drivers compile in parallel: 16 threads took an NVIDIA H200's host 2.45 s
for pipelines of 13.9 s, the longest of which took 2.2 s."""
log = logging.getLogger("gpu_executor.vulkan")


class PipelineRequest(NamedTuple):
    """A kernel and its tuning: what a pipeline is made for."""

    kernel: Kernel
    work_group: int
    per_invocation: int
    params_in_buffer: bool = False


@dataclass(frozen=True, slots=True)
class PipelineStats:
    """A hit found the pipeline in the cache; a miss created it."""

    hits: int
    misses: int
    evictions: int
    kept: int
    lowered: int
    """How many were made with pairs of words in place of 64-bit integers."""
    quick: int
    """How many were made in their quick form, which the driver compiles faster."""
    replaced: int
    """How many of these the usual form has replaced, compiled in the background."""
    compiling: int
    """How many compile threads compile now, or will."""


class PipelineCache:
    """The pipelines of one device; the least recently used is evicted first. Thread-safe."""

    def __init__(
        self,
        device: Device,
        files: PipelineFiles,
        *,
        capacity: int = MAX_PIPELINES,
        spirv_val: SpirvVal = "auto",
        quick_forms: bool = True,
    ) -> None:
        self._device = device
        self._files = files
        self._capacity = capacity
        self._spirv_val, self._quick_forms = spirv_val, quick_forms
        self._pipelines: LruCache[Key, Pipeline] = LruCache()
        self._lock = threading.Lock()
        self._running: dict[Key, threading.Event] = {}
        """The pipelines that a thread compiles, because somebody waits for them."""
        self._threads = CompileThreads()
        self._replacing: set[Key] = set()
        """The pipelines whose usual form a thread compiles."""
        self._replaced: list[Pipeline] = []
        """Quick forms that recorded commands still use."""
        self._hits = self._misses = self._evictions = self._lowered = self._quick = 0
        self.replacements = 0
        """How many quick forms were replaced."""

    def acquire(
        self,
        kernel: Kernel,
        work_group: int,
        per_invocation: int,
        *,
        params_in_buffer: bool = True,
    ) -> Pipeline:
        """Return the pipeline of a kernel and its tuning, in its quick form if the usual one is
        still being compiled.

        With `params_in_buffer`, push constants with parameters move into a uniform buffer where the
        device allows it, so that recorded commands serve other values too. `release` the pipeline
        when no recorded commands use it.
        """
        request = PipelineRequest(kernel, work_group, per_invocation, params_in_buffer)
        key, constants = self._check(request)
        while True:
            with self._lock:
                pipeline = self._pipelines.use(key)
                if pipeline is not None:
                    self._hits += 1
                    pipeline.users += 1
                    return pipeline
                running = self._running.get(key)
                if running is None:
                    done = self._running[key] = threading.Event()
                    break
            running.wait()
        return self._compile(request, constants, done)

    def compile_ahead(self, requests: Iterable[PipelineRequest], *, quick: bool = True) -> None:
        """Compile pipelines that will be acquired soon, by several threads; returns at once.

        With `quick=False`, pipelines have their usual form when the threads are done. What cannot
        be compiled raises its error in `acquire`.
        """
        for request in dict.fromkeys(requests):
            self._threads.run(functools.partial(self._compile_for_later, request, quick=quick))

    def wait(self, progress: Callable[[int], None] | None = None) -> None:
        """Wait for the compile threads; `progress` gets the number of pipelines that are left,
        whenever it changes."""
        self._threads.wait(progress)

    def compile_all(
        self, requests: Iterable[PipelineRequest], progress: Callable[[int, int], None]
    ) -> int:
        """Compile pipelines in their usual form by several threads, and wait for them; returns
        their number. `progress` gets how many are done, and that number."""
        chosen = list(dict.fromkeys(requests))
        self.compile_ahead(chosen, quick=False)
        self.wait(lambda left: progress(max(len(chosen) - left, 0), len(chosen)))
        for request in chosen:  # raises the error of one that cannot be compiled
            kernel, work_group, per_invocation, params_in_buffer = request
            self.release(
                self.acquire(kernel, work_group, per_invocation, params_in_buffer=params_in_buffer)
            )
        return len(chosen)

    def describe(self, requests: Iterable[PipelineRequest]) -> str:
        """In which form pipelines are in the cache, in words."""
        keys = [self._check(request)[0] for request in dict.fromkeys(requests)]
        with self._lock:
            found = [self._pipelines.get(key) for key in keys]
        missing, quick = (
            found.count(None),
            sum(each is not None and each.is_quick for each in found),
        )
        parts = [f"{len(keys)}"]
        if missing:
            parts.append(f"{missing} of them are compiled or read from disk by the call")
        if quick:
            parts.append(f"{quick} of them run in a quick form until the usual one is compiled")
        return ", ".join(parts)

    def release(self, pipeline: Pipeline) -> None:
        with self._lock:
            pipeline.users -= 1
            if pipeline.is_replaced:
                self._destroy_replaced()
            self._evict()

    def close(self) -> None:
        """Destroy all pipelines, after the compilations that have begun: a driver cannot end them.
        Those that have not begun are dropped."""
        self._threads.close()
        with self._lock:
            for pipeline in (*self._pipelines.values(), *self._replaced):
                destroy_pipeline(self._device, pipeline)
            self._pipelines.clear()
            self._replaced.clear()

    def stats(self) -> PipelineStats:
        with self._lock:
            return PipelineStats(
                self._hits,
                self._misses,
                self._evictions,
                len(self._pipelines),
                self._lowered,
                self._quick,
                self.replacements,
                self._threads.count(),
            )

    # --- compilation ---

    def _check(self, request: PipelineRequest) -> tuple[Key, Constants]:
        """The key and the constants of a pipeline; refuses what the device cannot run."""
        kernel, work_group, per_invocation, params_in_buffer = request
        chosen = choose_constants(kernel, work_group, per_invocation)
        constants = encode_specialization(kernel, chosen)
        check_work_group(kernel, work_group, self._device.info)
        key = make_key(kernel, constants, params_in_buffer=params_in_buffer)
        if key not in self._pipelines:
            check_shared_memory(kernel, chosen, self._device.info)
        return key, constants

    def _prepare(self, request: PipelineRequest, constants: Constants) -> PipelineCode:
        return prepare_code(
            self._device.info,
            request.kernel,
            constants,
            params_in_buffer=request.params_in_buffer,
            spirv_val=self._spirv_val,
        )

    def _compile(
        self,
        request: PipelineRequest,
        constants: Constants,
        done: threading.Event,
        *,
        quick: bool = True,
    ) -> Pipeline:
        """Make a pipeline that the caller has announced in `_running`, for one user."""
        key = make_key(request.kernel, constants, params_in_buffer=request.params_in_buffer)
        try:
            code = self._prepare(request, constants)
            is_slow = quick and self._may_be_quick(request.kernel)
            if is_slow and not self._files.has(code.name):
                code = to_quick_form(code)
            pipeline = make_pipeline(self._device, code, self._files)
        except BaseException:
            with self._lock:
                del self._running[key]
            done.set()
            raise
        with self._lock:
            del self._running[key]
            self._misses += 1
            self._lowered += pipeline.is_lowered
            self._quick += pipeline.is_quick
            pipeline.users += 1
            self._pipelines[key] = pipeline
            self._evict()
        done.set()
        if pipeline.is_quick:
            replace = functools.partial(self._replace, request, constants)
            self._threads.run(replace, urgent=False)
        return pipeline

    def _may_be_quick(self, kernel: Kernel) -> bool:
        """Whether the quick form gains: software drivers compile variants of their own
        (`kernels/curves.py`)."""
        is_gpu = self._device.info.kind != "cpu"
        return self._quick_forms and is_gpu and compiles_slowly(kernel.digest)

    def _compile_for_later(self, request: PipelineRequest, *, quick: bool) -> None:
        """Make a pipeline that nobody uses yet, unless it exists or another thread makes it."""
        try:
            key, constants = self._check(request)
            with self._lock:
                known = self._pipelines.get(key)
                if known is None:
                    if key in self._running:
                        return
                    done = self._running[key] = threading.Event()
            if known is None:
                self.release(self._compile(request, constants, done, quick=quick))
            elif known.is_quick and not quick:
                self._replace(request, constants)
        except GpuError as error:
            log.debug("%s was not compiled ahead: %s", request.kernel.name, error)

    def _replace(self, request: PipelineRequest, constants: Constants) -> None:
        """Put the usual form in the place of the quick one."""
        key = make_key(request.kernel, constants, params_in_buffer=request.params_in_buffer)
        with self._lock:
            known = self._pipelines.get(key)
            if known is None or not known.is_quick or key in self._replacing:
                return
            self._replacing.add(key)
        try:
            pipeline = make_pipeline(self._device, self._prepare(request, constants), self._files)
        except GpuError as error:
            log.warning("%s keeps the quick form of its pipeline: %s", request.kernel.name, error)
            return
        finally:
            with self._lock:
                self._replacing.discard(key)
        with self._lock:
            quick = self._pipelines.get(key)
            self._pipelines[key] = pipeline
            if quick is not None:
                quick.is_replaced = True
                self._replaced.append(quick)
            self.replacements += 1
            self._destroy_replaced()
            self._evict()

    def _destroy_replaced(self) -> None:
        """Destroy the replaced pipelines that no recorded commands refer to."""
        unused = [each for each in self._replaced if not each.users]
        self._replaced = [each for each in self._replaced if each.users]
        for each in unused:
            destroy_pipeline(self._device, each)

    def _evict(self) -> None:
        """Destroy the least recently used pipelines that no recorded commands refer to."""
        for unused in self._pipelines.evict(self._capacity, in_use=lambda each: each.users > 0):
            destroy_pipeline(self._device, unused)
            self._evictions += 1


class CompileThreads:
    """Threads that compile pipelines. They start with the jobs and end when there are none."""

    def __init__(self) -> None:
        self._most = min(MAX_COMPILE_THREADS, count_cores())
        self._urgent: deque[Callable[[], None]] = deque()
        self._later: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = self._left = 0
        """The threads, and the jobs that are not done."""
        self._closed = False

    def run(self, job: Callable[[], None], *, urgent: bool = True) -> None:
        """Run a job in one of the threads; those that somebody waits for come first. After `close`
        it is dropped."""
        with self._changed:
            if self._closed:
                return
            (self._urgent if urgent else self._later).append(job)
            self._left += 1
            if self._threads == self._most:
                return
            self._threads += 1
        # Python does not join these when it ends: `close` waits for the jobs that have begun.
        threading.Thread(target=self._work, name="compile pipelines", daemon=True).start()

    def count(self) -> int:
        """The jobs that are not done."""
        return self._left

    def wait(self, progress: Callable[[int], None] | None = None) -> None:
        """Return when no job is left; `progress` gets their number whenever it changes."""
        with self._changed:
            left = self._left
        while True:
            if progress is not None:
                progress(left)
            if not left:
                return
            with self._changed:
                while self._left == left:
                    self._changed.wait()
                left = self._left

    def close(self) -> None:
        """Drop the jobs that have not begun, and wait for the others."""
        with self._changed:
            self._closed = True
            self._left -= len(self._urgent) + len(self._later)
            self._urgent.clear()
            self._later.clear()
            self._changed.wait_for(lambda: not self._threads)

    def _work(self) -> None:
        while True:
            with self._changed:
                jobs = self._urgent or self._later
                if not jobs:
                    self._threads -= 1
                    self._changed.notify_all()
                    return
                job = jobs.popleft()
            try:
                job()
            except Exception:
                log.exception("a pipeline was not compiled in the background")
            del job  # the traceback of its exception would keep objects alive
            with self._changed:
                self._left -= 1
                self._changed.notify_all()
