"""Calls that wait for memory of other calls, and a close that waits for calls."""

from __future__ import annotations

import functools
import threading

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernels.modules import load_spirv
from gpu_executor.vulkan.memory import Allocation, MemoryPool, Purpose
from tests.conftest import OpenGpu
from tests.support.device_waits import HeldWait
from tests.support.threads import PATIENCE, in_background

ADD_U32 = gx.kernels.load("vector_add_u32")
UNCUT = gx.Kernel.from_spirv(
    load_spirv("vector_add_u32"), count=True, buffers="in, in, out", split="whole", work_group=64
)
"""Needs all its memory at once; a call that can be chunked takes what there is."""
X = np.arange(9, dtype=np.uint32)


def test_a_call_waits_until_another_releases_its_memory(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu(memory_limit=40_000)
    x = np.arange(1666, dtype=np.uint32)  # its slot needs more than half of the limit
    with HeldWait(monkeypatch) as held:
        first, first_results = in_background(lambda: gpu.run(UNCUT, x, x))
        assert held.reached.wait(PATIENCE)
        second, second_results = in_background(lambda: gpu.run(UNCUT, x, x + 1))
        second.join(0.2)
        assert second.is_alive(), "there is no memory for it yet"
    for thread in (first, second):
        thread.join(PATIENCE)
    np.testing.assert_array_equal(first_results, [2 * x])
    np.testing.assert_array_equal(second_results, [2 * x + 1])


def test_close_returns_when_the_last_call_is_done(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    with HeldWait(monkeypatch) as held:
        call, results = in_background(lambda: gpu.run(ADD_U32, X, X))
        assert held.reached.wait(PATIENCE)
        closing, _ = in_background(gpu.close)
        closing.join(0.2)
        assert closing.is_alive(), "a call is still running"
        with pytest.raises(gx.errors.ClosedError):
            gpu.run(ADD_U32, X, X)
    for thread in (call, closing):
        thread.join(PATIENCE)
        assert not thread.is_alive()
    np.testing.assert_array_equal(results, [2 * X])


def test_two_calls_that_compete_for_memory_both_complete(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has its inputs, neither can allocate its outputs, and both fail at once."""
    allocate, seen = MemoryPool.allocate, threading.local()
    both_have_inputs, both_failed = threading.Barrier(2), threading.Barrier(2)

    def allocate_in_step(pool: MemoryPool, purpose: Purpose, nbytes: int) -> Allocation:
        if purpose is not Purpose.READBACK or hasattr(seen, "tried"):
            return allocate(pool, purpose, nbytes)
        seen.tried = True
        both_have_inputs.wait(PATIENCE)
        try:
            return allocate(pool, purpose, nbytes)
        except gx.OutOfMemoryError:
            both_failed.wait(PATIENCE)
            raise

    monkeypatch.setattr(MemoryPool, "allocate", allocate_in_step)
    gpu = fresh_gpu(memory_limit=50_700)
    xs = [np.arange(2112, dtype=np.uint32) + number for number in range(2)]
    calls = [in_background(functools.partial(gpu.run, UNCUT, x, x)) for x in xs]
    for (thread, results), x in zip(calls, xs, strict=True):
        thread.join(PATIENCE)
        np.testing.assert_array_equal(results, [2 * x])
