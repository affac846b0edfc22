"""Open streams do not block: closing the backend and other calls do not wait for them."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from tests.conftest import OpenGpu, RunPython
from tests.support.device_waits import HeldWait
from tests.support.jobs import ADD_U32, check_sums, word_jobs
from tests.support.threads import PATIENCE, in_background

# Each in a process of its own: a hang ends by a time limit and shows where it is.
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


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS)
def test_an_open_stream_does_not_block_close(run_python: RunPython, ending: str) -> None:
    ran = run_python(HELD.format(count=500, limit=None, depth=3) + ending)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


@pytest.mark.parametrize("depth", [None, 16])
def test_other_calls_run_while_a_stream_is_open(run_python: RunPython, depth: int | None) -> None:
    others = """
y = np.arange(3000, dtype=np.uint32)
assert (gpu.run(add, y, y) == 2 * y).all()
assert (gpu.run_batch(add, [(y, y)])[0] == 2 * y).all()
assert [(result == 2 * x).all() for result in stream] == [True] * 49
gpu.close()
"""
    ran = run_python(HELD.format(count=2000, limit=200_000, depth=depth) + others)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


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
