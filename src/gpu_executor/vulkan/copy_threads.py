"""Copies between NumPy arrays; large copies are shared by several threads.

NumPy releases the GIL while it copies. One thread copies 12 GB/s on the host of an NVIDIA H200,
eight 60. A large copy is split into segments, and each free thread takes the next segment. The
caller starts at once.

A sleeping thread needs 50 us and more to wake up, and so does one that finds the GIL taken. So few
threads with one large segment each share a copy of some megabytes. A call with its copies to the
device and back took, with 1, 2, 3, 4, 6 and 8 threads: 203, 171, 135, 165, 307 and 306 us for 1.5
MiB; 821, 681, 521, 565, 836 and 785 us for 6 MiB; 3.1, 2.2, 1.8, 1.7, 1.5 and 1.6 ms for 24 MiB.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np

from gpu_executor.calls.call import Array
from gpu_executor.common.cpu_cores import count_cores

Pair = tuple[Array, Array]
"""Target and source, of equal shapes."""
Task = Callable[[], None]
Segment = tuple[Sequence[Pair], Task | None]
"""Pairs that one thread copies, and what the thread does afterwards."""

MAX_THREADS = 8
SMALLEST_SEGMENT = 512 << 10
"""Bytes. Copying them takes one thread about as long as waking another thread."""
FEW_THREADS, BYTES_PER_THREAD = 3, 6 << 20
"""Threads that share a small copy, and the bytes from which one more is worth its contention: both
are of the host, whose threads wait for the GIL. How many share a large copy is calibrated. All
eight share a segment of 32 MiB: 128 MiB to an NVIDIA H200 took 4.5 ms, and 5.6 ms with seven."""
SEGMENTS_PER_THREAD = 2
"""Of a copy that more threads share: the wait for the last segment is short."""


class CopyThreads:
    """Threads that copy; they start with the first large copy. Thread-safe."""

    def __init__(self, threads: int | None = None) -> None:
        self.max_threads = threads or min(MAX_THREADS, count_cores())
        self.threads = self.max_threads
        """Threads that copy at once, including the caller: `max_threads`, or fewer if faster."""
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._workers: list[threading.Thread] = []
        self._lock = threading.Lock()

    def copy(self, pairs: Sequence[Pair]) -> None:
        """Copy each source to its target; returns when all copies are done."""
        nbytes = sum([target.nbytes for target, _ in pairs])
        threads = self._choose_threads(nbytes)
        if threads < 2:
            for target, source in pairs:
                np.copyto(target, source, casting="equiv")
            return
        number = threads if threads <= FEW_THREADS else threads * SEGMENTS_PER_THREAD
        self._share([(segment, None) for segment in _split_pairs(pairs, nbytes, number)], threads)

    def copy_segments(self, segments: Sequence[Segment]) -> None:
        """Copy every segment and do what follows it; returns when all is done."""
        nbytes = sum([target.nbytes for pairs, _ in segments for target, _ in pairs])
        self._share(segments, min(self._choose_threads(nbytes), len(segments)))

    def _choose_threads(self, nbytes: int) -> int:
        few = FEW_THREADS + nbytes // BYTES_PER_THREAD
        return min(self.threads, nbytes // SMALLEST_SEGMENT, few)

    def _share(self, segments: Sequence[Segment], threads: int) -> None:
        """Let the caller and `threads` - 1 helpers take one segment after the other."""
        helpers = max(threads - 1, 0)
        self._ensure_workers(helpers)
        shared = _SharedCopy(segments)
        for _ in range(helpers):
            self._tasks.put(shared.help)
        try:
            shared.copy()
        finally:
            # Wait even after an exception: other threads still use the arrays.
            shared.wait()
        if shared.error is not None:
            raise shared.error

    def hand_over(self, task: Task) -> None:
        """Run `task` in one of the threads, soon. The task must not raise."""
        self._ensure_workers(self.threads)
        self._tasks.put(task)

    def close(self) -> None:
        with self._lock:
            for _ in self._workers:
                self._tasks.put(None)
            for worker in self._workers:
                worker.join()
            self._workers.clear()

    def _ensure_workers(self, number: int) -> None:
        if len(self._workers) >= number:
            return
        with self._lock:
            while len(self._workers) < number:
                worker = threading.Thread(target=_run_tasks, args=(self._tasks,), daemon=True)
                worker.start()
                self._workers.append(worker)


class _SharedCopy:
    """The segments of one copy that no thread has taken yet, and the helpers that are copying.

    Appending to and popping from lists and deques are atomic under the GIL. A `threading.Condition`
    is Python code and costs more than copying a small segment.
    """

    __slots__ = ("_busy", "_done", "_segments", "error")

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = deque(segments)
        self._busy: list[None] = []
        self._done: SimpleQueue[None] = SimpleQueue()
        self.error: BaseException | None = None

    def copy(self) -> None:
        """Copy one segment after the other until none is left."""
        while self._segments:
            try:
                pairs, task = self._segments.popleft()
            except IndexError:
                return  # another thread took it
            for target, source in pairs:
                np.copyto(target, source, casting="equiv")
            if task is not None:
                task()

    def help(self) -> None:
        """Run `copy` in a helper thread, while the caller waits for it."""
        # Busy before it takes a segment: no segment left and no helper busy means that all is done.
        self._busy.append(None)
        try:
            self.copy()
        except BaseException as error:
            self.error = error
        finally:
            self._busy.pop()
            self._done.put(None)

    def wait(self) -> None:
        """Return when no helper is busy; segments that were not started are dropped."""
        self._segments.clear()
        interrupt = None
        while self._busy:
            try:
                self._done.get()
            except KeyboardInterrupt as error:  # raised later: helpers still write to the arrays
                interrupt = error
        if interrupt is not None:
            raise interrupt


def _run_tasks(tasks: SimpleQueue[Task | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # the traceback of its exception would keep arrays alive


def _split_pairs(pairs: Sequence[Pair], nbytes: int, segments: int) -> list[list[Pair]]:
    """Split the pairs along their first axis into `segments` lists of nearly equal bytes."""
    share = -(-nbytes // segments)
    lists: list[list[Pair]] = [[]]
    room = share
    for target, source in pairs:
        row = max(target.nbytes // max(len(target), 1), 1)
        start = 0
        while start < len(target):
            if room < row and len(lists) < segments:
                lists.append([])
                room = share
            count = len(target) - start if len(lists) == segments else max(room // row, 1)
            lists[-1].append((target[start : start + count], source[start : start + count]))
            start += count
            room -= count * row
    return lists
