"""WgpuExecutor: kernels on NumPy arrays through WebGPU, with caches by bucket and by exact size."""

from __future__ import annotations

import bisect
import ctypes
import dataclasses
import itertools
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpu_executor.call import Array, Call, Form, Operand
from gpu_executor.errors import ArgumentTypeError, DeviceLacksError, ElementRangeError
from gpu_executor.forking import LEFT_TO_PARENT, tell_in_child
from gpu_executor.forms import Forms
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load, names
from gpu_executor.plan import Piece
from gpu_executor.settings import Settings
from gpu_executor.webgpu.borders import Borders
from gpu_executor.webgpu.buckets import Bucket, BucketCache, BucketStats
from gpu_executor.webgpu.buffers import BufferPool
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.exact import ExactCache
from gpu_executor.webgpu.in_use import InUse
from gpu_executor.webgpu.kept import Kept, keep, kept_path, read_kept
from gpu_executor.webgpu.private_waiting import choose_waiting
from gpu_executor.webgpu.programs import Program, Programs
from gpu_executor.webgpu.results import Results
from gpu_executor.webgpu.sets import BufferSet, fits
from gpu_executor.webgpu.stats import WgpuStats

IN_FLIGHT_BYTES = 256 << 20
"""Buffers of tasks that were submitted and not read yet."""


def _bytes_of_set(form: Form, size: int) -> int:
    """About what a buffer set takes: inputs, outputs and staging."""
    if form.kernel.split == "whole":
        return sum(operand.nbytes for operand in form.operands)
    return size * sum(operand.type.nbytes for operand in form.operands)


@dataclass(slots=True, eq=False)
class Task:
    """A piece of a call on its way through a buffer set."""

    call: Call
    piece: Piece
    bucket: Bucket | None
    """None where the set is an exact one."""
    buffers: BufferSet


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
        self._waiting = choose_waiting(self._device, private=private)
        self._pool = BufferPool(self._device.device, largest=self._device.most_in_buffer)
        self._programs = Programs(self._device)
        self._buckets = BucketCache(self._bucket_set)
        folder = settings.cache_dir
        self._kept_at = None if folder is None else kept_path(folder, self._device.name)
        kept = Kept() if self._kept_at is None else read_kept(self._kept_at)
        self._kept = kept
        self._borders = Borders(adaptive=adaptive, known=kept.borders if adaptive else ())
        self._use = InUse(self._device)
        self._exact = ExactCache()
        self._results = Results()
        self._most: dict[Kernel, int] = {}
        self._lost: list[BufferSet] = []
        """Kept until the device is closed: their buffers may yet call back."""
        self._forms = Forms(on_card=False)
        self._counting = threading.Lock()
        self._calls = self._elements = self._tasks = self._submissions = self._sets = 0
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
                self._run_single(call)
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
            self._run_calls([call for call in calls if call.form.count])
        return [call.result() for call in calls]

    def warm_up(self, kernel: Kernel | None = None, sizes: Sequence[int] = ()) -> None:
        """Compile for calls of so many elements, and make a buffer set for each.

        Without a kernel: for those of this package's kernels that earlier processes used.
        """
        with self._use:
            if kernel is not None:
                self._warm_up(kernel, {self._bucket(kernel, size) for size in sizes})
                return
            for name, buckets in self._kept.used.items():
                if name in names():
                    self._warm_up(load(name), set(buckets))

    def _warm_up(self, kernel: Kernel, buckets: set[int]) -> None:
        for bucket in sorted(buckets):
            self._programs.warm_up(kernel, bucket)
            made = self._buckets.get_or_create(bucket, kernel)
            self._buckets.put_back(made, self._buckets.take_set(made))

    def stats(self) -> WgpuStats:
        """Calls, caches and what they hold."""
        programs = self._programs.all()
        return WgpuStats(
            device=self._device.name,
            backend=self._device.backend,
            calls=self._calls,
            elements=self._elements,
            tasks=self._tasks,
            submissions=self._submissions,
            pipelines=len(programs),
            compile_seconds=sum(program.seconds for program in programs),
            buffer_sets=self._sets,
            exact_hits=self._exact.hits,
            exact_entries=len(self._exact),
            bucket_sizes=tuple(self._buckets.sizes()),
            buckets=tuple(self.bucket_cache_stats()),
            bucket_evictions=self._buckets.evictions,
            borders=tuple(self._borders.own),
            padding=self._borders.waste(),
            pool=self._pool.stats(),
        )

    def bucket_cache_stats(self) -> list[BucketStats]:
        """Per bucket: hits, misses, evictions, pipelines, compile time, bytes held."""
        found = []
        for kernel, stats in self._buckets.stats():
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
            self._buckets.clear()
            self._exact.clear()
            self._results.clear()
            self._pool.clear()
        self._finalizer()

    def trim(self) -> int:
        """Free what no running call needs; returns the bytes of buffers given back."""
        with self._use:
            self._buckets.clear()
            self._exact.clear()
            self._results.clear()
            nbytes = self._pool.stats().bytes_idle
            self._pool.clear()
        return nbytes

    def _leave_to_parent(self) -> None:
        # Collected, wgpu-py's objects would call the library, and wait there for the parent's
        # threads: one reference too many, and they never are.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(vars(self).copy()))
        self._finalizer.detach()
        self._use = self._programs = self._buckets = LEFT_TO_PARENT

    def _to_keep(self) -> Kept:
        """What was kept before, and what was used since."""
        borders = self._borders.own if self._borders.adaptive else self._kept.borders
        used = dict(self._kept.used)
        for name, sizes in self._buckets.used().items():
            used[name] = sorted({*used.get(name, ()), *sizes})
        return Kept(borders, used)

    def __enter__(self) -> WgpuExecutor:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<WgpuExecutor on {self._device.name}, {state}>"

    def _run_single(self, call: Call) -> None:
        """A call that comes again at its size has all that it needs at hand."""
        form = call.form
        buffers = self._exact.take(form)
        if buffers is None:
            self._run_calls([call])
            return
        piece = Piece(0, form.count)
        size = self._bucket_size(form, form.count)
        task = Task(call, piece, None, buffers)
        found = self._finish(self._submit_tasks(self._programs.get(form.kernel, size), [task]))
        if found:
            raise found[0]
        self._count(1, form.count)

    def _run_calls(self, calls: Sequence[Call]) -> None:
        """Submit group after group; read the oldest when much is in flight, the rest at the end."""
        flying: deque[list[Task]] = deque()
        found: list[ElementRangeError] = []
        nbytes = 0
        try:
            for bucket, pieces in self._groups(calls):
                group = self._submit(bucket, pieces)
                flying.append(group)
                nbytes += sum(task.buffers.nbytes for task in group)
                while nbytes > IN_FLIGHT_BYTES and len(flying) > 1:
                    done = flying.popleft()
                    nbytes -= sum(task.buffers.nbytes for task in done)
                    found += self._finish(done)
            while flying:
                found += self._finish(flying.popleft())
        except BaseException:
            for group in flying:
                self._abandon(group)
            raise
        if found:  # groups are by size; who called thinks in jobs
            raise min(found, key=lambda error: (error.job or 0, error.index))
        self._count(len(calls), sum(call.form.count for call in calls))

    def _groups(
        self, calls: Sequence[Call]
    ) -> list[tuple[tuple[Kernel, int], list[tuple[Call, Piece]]]]:
        """Pieces by bucket, and within it by size."""
        pieces = [
            (self._bucket_size(call.form, piece.count), call, piece)
            for call in calls
            for piece in self._pieces(call.form)
        ]
        pieces.sort(key=lambda entry: (entry[0], entry[2].count))
        groups = []
        for size, group in itertools.groupby(pieces, key=lambda entry: entry[0]):
            among = [(call, piece) for _, call, piece in group]
            form = among[0][0].form
            most = max(1, IN_FLIGHT_BYTES // (2 * _bytes_of_set(form, size)))
            for start in range(0, len(among), most):
                groups.append(((form.kernel, size), among[start : start + most]))
        return groups

    def _pieces(self, form: Form) -> list[Piece]:
        """A call that is larger than buffers may be is cut, where its kernel can be."""
        kernel = form.kernel
        if fits(kernel, [operand.nbytes for operand in form.operands], self._device):
            return [Piece(0, form.count)]
        if kernel.split == "whole":
            raise DeviceLacksError(
                f"{kernel.name}: these arrays need more than the {self._device.most_bound:,} bytes "
                f"that {self._device.name} binds or the {self._device.most_in_buffer:,} of a "
                "buffer, and this kernel cannot be cut"
            )
        chunk = self._most_elements(kernel)
        starts = range(0, form.count, chunk)
        return [Piece(start, min(chunk, form.count - start)) for start in starts]

    def _bucket_size(self, form: Form, count: int) -> int:
        return form.count if form.kernel.split == "whole" else self._bucket(form.kernel, count)

    def _bucket(self, kernel: Kernel, count: int) -> int:
        """The bucket of so many elements, which are no more than a buffer set can have."""
        return max(count, min(self._borders.bucket(count), self._most_elements(kernel)))

    def _most_elements(self, kernel: Kernel) -> int:
        """How many a buffer set can have room for."""
        known = self._most.get(kernel)
        if known is None:
            types = kernel.types
            assert types is not None, "kernels for WebGPU name their types"
            known = bisect.bisect_left(
                range(1, self._device.most_bound),
                True,
                key=lambda n: not fits(kernel, [n * each.nbytes for each in types], self._device),
            )
            self._most[kernel] = known
        return known

    def _submit(self, key: tuple[Kernel, int], pieces: list[tuple[Call, Piece]]) -> list[Task]:
        """One encoder, one pass, one submission for a group."""
        kernel, size = key
        program = self._programs.get(kernel, size)
        tasks: list[Task] = []
        try:
            for call, piece in pieces:
                tasks.append(self._task(kernel, size, call, piece, single=len(pieces) == 1))
        except BaseException:
            self._abandon(tasks)
            raise
        return self._submit_tasks(program, tasks)

    def _submit_tasks(self, program: Program, tasks: list[Task]) -> list[Task]:
        try:
            uses = [task.buffers.use(task.call, task.piece) for task in tasks]
        except BaseException:
            for task in tasks:
                self._put_back(task)  # nothing was done with them
            raise
        try:
            dispatches = []
            for task, use in zip(tasks, uses, strict=True):
                task.buffers.write(task.call, task.piece)
                dispatches.append(task.buffers.dispatch(program, use))
            copies_in = [copy for use in uses for copy in use.copies_in]
            copies_out = [copy for use in uses for copy in use.copies_out]
            submitted = self._waiting.submit(program.pipeline, copies_in, dispatches, copies_out)
            for task, use in zip(tasks, uses, strict=True):
                task.buffers.begin(use, submitted)
        except BaseException:
            self._abandon(tasks)
            raise
        with self._counting:
            self._submissions += 1
            self._tasks += len(tasks)
        return tasks

    def _task(self, kernel: Kernel, size: int, call: Call, piece: Piece, *, single: bool) -> Task:
        form = call.form
        if (single and piece.count == form.count) or kernel.split == "whole":
            exact = self._exact.take(form)
            if exact is None and (kernel.split == "whole" or self._exact.comes_again(form)):
                exact = self._make_set(kernel, form.operands)
            if exact is not None:
                return Task(call, piece, None, exact)
        bucket = self._buckets.get_or_create(size, kernel)
        return Task(call, piece, bucket, self._buckets.take_set(bucket))

    def _finish(self, group: list[Task]) -> list[ElementRangeError]:
        """Read the results of a group, and give its sets back; what its kernels found."""
        found = []
        for done, task in enumerate(group):
            try:
                reader = task.buffers.reader
                error = task.buffers.read(reader.wait(), task.call, task.piece)
                reader.end()
            except BaseException:
                self._abandon(group[done:])
                raise
            if error is not None:
                found.append(error)
            self._put_back(task)
        return found

    def _put_back(self, task: Task) -> None:
        if task.bucket is None:
            self._exact.put_back(task.call.form, task.buffers)
        else:
            self._buckets.put_back(task.bucket, task.buffers)

    def _abandon(self, group: list[Task]) -> None:
        """Forget tasks, and their sets with them: where an error or an interrupt came, nobody knows
        which buffers are mapped."""
        for task in group:
            task.buffers.discard()
            if task.bucket is not None:
                self._buckets.lose_set(task.bucket)
            self._lost.append(task.buffers)

    def _bucket_set(self, kernel: Kernel, bucket: int) -> BufferSet:
        types = kernel.types
        assert types is not None, "kernels for WebGPU name their types"
        operands = [Operand(type_, bucket) for type_ in types]
        return self._make_set(kernel, operands)

    def _make_set(self, kernel: Kernel, operands: Sequence[Operand]) -> BufferSet:
        with self._counting:
            self._sets += 1
        layout = self._programs.layout(kernel)
        return BufferSet(self._device, self._pool, kernel, operands, layout, self._waiting)

    def _count(self, calls: int, elements: int) -> None:
        with self._counting:
            self._calls += calls
            self._elements += elements
