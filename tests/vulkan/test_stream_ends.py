"""Open streams do not block: closing the backend and other calls do not wait for them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.vulkan.batch import Stream
from tests.conftest import OpenGpu, RunPython
from tests.support.device_waits import HeldWait
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.threads import PATIENCE, in_background

# In processes of their own: a hang ends by a time limit and shows where it is.
HELD = """
import faulthandler
faulthandler.dump_traceback_later(60, exit=True)
import dataclasses
import numpy as np, gpu_executor as gx
add, x = gx.kernels.load("vector_add_u32"), np.arange({count}, dtype=np.uint32)
settings = dataclasses.replace(gx.Settings.from_environment(), memory_limit={limit})
gpu = gx.PersistentVulkanBackend(settings=settings)
stream = gpu.stream(add, ((x, x) for _ in range(50)), depth={depth})
assert (next(stream) == 2 * x).all()
"""
ENDINGS = {
    "close": "gpu.close()",
    "close, then the stream": """
gpu.close()
try:
    list(stream)
except gx.errors.ClosedError:
    pass
else:
    raise SystemExit("the stream went on")
""",
    "with": "with gpu:\n    pass",
    "the interpreter's end": "",
}


def test_an_open_stream_does_not_block_close(run_python: RunPython) -> None:
    """In one interpreter, which says what it has done."""
    held = HELD.format(count=500, limit=None, depth=3)
    scripts = [f"{held}{end}\nprint({name!r}, flush=True)\n" for name, end in ENDINGS.items()]
    ran = run_python("".join(scripts))
    assert (ran.returncode, ran.stdout.splitlines(), ran.stderr) == (0, list(ENDINGS), "")


# Each runs inside `jobs` or `out` of a stream with jobs in flight, and the stream then raises.
CLOSED_INSIDE = """
import faulthandler
faulthandler.dump_traceback_later(60, exit=True)
import numpy as np, gpu_executor as gx
add, x = gx.kernels.load("vector_add_u32"), np.arange(500, dtype=np.uint32)
gpu = gx.PersistentVulkanBackend()
def close():
    {close}
def jobs(count, at):
    for number in range(count):
        if number == at:
            close()
        yield x, x
def jobs_then_close(count):
    yield from jobs(count, -1)
    close()
def outs(at):
    for job in jobs(20, at):
        yield np.empty_like(x)
results = []
try:
    for result in {stream}:
        results.append(result)
except gx.errors.ClosedError as error:
    assert "the backend is closed" in str(error)
else:
    raise SystemExit("the stream went on")
assert all((result == 2 * x).all() for result in results)
assert 1 <= len(results) < 12, len(results)
assert repr(gpu).endswith("closed>")
assert gpu.stats().slots.in_use == gpu.stats().slots.idle == 0
assert gpu.stats().memory.bytes_used == 0
gpu.close()
with gx.PersistentVulkanBackend() as another:
    assert (another.run(add, x, x) == 2 * x).all()
"""
IN_JOBS = "gpu.stream(add, jobs(20, 9), depth=3)"
CLOSES = {
    "in jobs": ("gpu.close()", IN_JOBS),
    "in out": ("gpu.close()", "gpu.stream(add, jobs(20, -1), out=outs(9), depth=3)"),
    "twice": ("gpu.close(); gpu.close()", IN_JOBS),
    "with": ("with gpu: pass", IN_JOBS),
    "before the last job": ("gpu.close()", "gpu.stream(add, jobs(10, 9), depth=3)"),
    "after the last job": ("gpu.close()", "gpu.stream(add, jobs_then_close(10), depth=3)"),
    "a stream in a stream": (
        "gpu.close()",
        "gpu.stream(add, ((y, np.zeros_like(y)) for y in gpu.stream(add, jobs(20, 11))), depth=3)",
    ),
}


def test_closing_inside_a_streams_iterables_ends_the_stream(run_python: RunPython) -> None:
    """In one interpreter, which says what it has done."""
    scripts = [
        CLOSED_INSIDE.format(close=close, stream=stream) + f"print({name!r}, flush=True)\n"
        for name, (close, stream) in CLOSES.items()
    ]
    ran = run_python("".join(scripts))
    assert (ran.returncode, ran.stdout.splitlines(), ran.stderr) == (0, list(CLOSES), "")


@pytest.mark.parametrize("use", [next, Stream.close])
def test_a_stream_that_is_used_inside_its_own_iterable_says_so(
    gpu: gx.PersistentVulkanBackend, use: Callable[[Stream], Any]
) -> None:
    streams: list[Stream] = []

    def jobs() -> Iterator[Any]:
        yield word_jobs(70)[0]
        use(streams[0])

    streams.append(gpu.stream(ADD_U32, jobs(), depth=3))
    with pytest.raises(gx.GpuError, match="the stream is being read, in another thread or by"):
        list(streams[0])
    assert gpu.stats().slots.in_use == 0


def test_an_error_of_the_iterable_is_raised_as_it_is(gpu: gx.PersistentVulkanBackend) -> None:
    def jobs() -> Iterator[Any]:
        yield word_jobs(70)[0]
        raise ValueError("mine")

    with pytest.raises(ValueError, match=r"^mine$"):
        list(gpu.stream(ADD_U32, jobs()))


def test_other_calls_run_while_a_stream_is_open(run_python: RunPython) -> None:
    others = """
y = np.arange(3000, dtype=np.uint32)
assert (gpu.run(add, y, y) == 2 * y).all()
assert (gpu.run_batch(add, [(y, y)])[0] == 2 * y).all()
assert [(result == 2 * x).all() for result in stream] == [True] * 49
gpu.close()
"""
    scripts = [
        f"{HELD.format(count=2000, limit=200_000, depth=depth)}{others}print({depth}, flush=True)\n"
        for depth in (None, 16)
    ]
    ran = run_python("".join(scripts))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "None\n16\n", "")


LARGE_CALLS = {
    "between two results": """
try:
    gpu.run(product, y, y)
except gx.OutOfMemoryError:
    pass
else:
    raise SystemExit("the limit was not kept")
assert [(result == 2 * x).all() for result in stream] == [True] * 49
assert (gpu.run(product, y, y) == y @ y).all()
""",
    "in the iterable": """
stream.close()
def jobs():
    yield from [(x, x)] * 5
    gpu.run(product, y, y)
try:
    list(gpu.stream(add, jobs(), depth=3))
except gx.OutOfMemoryError:
    pass
else:
    raise SystemExit("the limit was not kept")
""",
}


def test_a_call_for_which_a_stream_leaves_no_memory_is_refused(run_python: RunPython) -> None:
    """It must not wait for the stream, which waits for the thread that makes the call."""
    setup = """
product, y = gx.kernels.load("matmul_u32"), np.arange(110 * 110, dtype=np.uint32).reshape(110, 110)
"""
    held = HELD.format(count=2000, limit=200_000, depth=3) + setup
    scripts = [f"{held}{calls}print({name!r}, flush=True)\n" for name, calls in LARGE_CALLS.items()]
    ran = run_python("".join(scripts))
    assert (ran.returncode, ran.stdout.splitlines(), ran.stderr) == (0, list(LARGE_CALLS), "")


def test_a_stream_iterated_by_another_thread_ends_with_the_backend(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, jobs = fresh_gpu(), word_jobs(*[70] * 20)
    stream = gpu.stream(ADD_U32, jobs, depth=3)
    with HeldWait(monkeypatch) as held:
        working, results = in_background(lambda: next(stream))
        assert held.reached.wait(PATIENCE)
        closing, _ = in_background(gpu.close)
        closing.join(0.2)
        assert closing.is_alive(), "the stream is at work"
    working.join(PATIENCE)
    check_sums(results, jobs[:1])
    with pytest.raises(gx.errors.ClosedError):
        next(stream)
    closing.join(10)
    assert not closing.is_alive(), "the stream has its slots still"


def test_concurrent_streams_do_not_mix(gpu: gx.PersistentVulkanBackend) -> None:
    jobs = word_jobs(70, 0, 71, 300, 5), word_jobs(9, 300, 1, 0, 64)
    streams = [gpu.stream(ADD_U32, each) for each in jobs]
    results = list(zip(*streams, strict=True))
    for number, each in enumerate(jobs):
        check_sums([np.asarray(result[number]) for result in results], each)


def test_the_garbage_collector_closes_no_stream_while_a_lock_is_held(fresh_gpu: OpenGpu) -> None:
    gpu, x = fresh_gpu(), np.arange(100, dtype=np.uint32)

    def drop_a_stream() -> None:
        stream = gpu.stream(ADD_U32, ((x, x) for _ in range(9)))
        next(stream)
        cycle: list[object] = [stream]
        cycle.append(cycle)

    def collect() -> None:
        with gpu._session._slot_pool._lock:
            gc.collect()

    drop_a_stream()
    collecting = threading.Thread(target=collect, daemon=True)
    collecting.start()
    collecting.join(30)
    assert not collecting.is_alive(), "closing the stream waits for the lock"
    assert gpu.stats().slots.in_use == 0, "the next call closes it"
