"""Ctrl-C while a call waits for the device: it is raised, and the next call is exact."""

from __future__ import annotations

import functools
import gc
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.vulkan import binding
from tests.conftest import OpenGpu, elements, on_both_paths
from tests.support.interrupts import (
    LENGTH,
    LONG,
    InFlightTracker,
    interrupt_submissions,
    interrupt_waits,
)

FQ_ADD = gx.kernels.load("bls12_381_fq_add")


@functools.cache
def make_long_call() -> tuple[Any, Any, Any]:
    """Two arrays, and what `LONG` computes of them."""
    prime = BLS12_381_FQ
    xs, ys = elements(prime, 5000, 1), elements(prime, 5000, 2)
    r_inverse = pow(prime.r, -1, prime.modulus)
    factors = [pow(y * r_inverse, LENGTH, prime.modulus) for y in ys]
    expected = [x * factor % prime.modulus for x, factor in zip(xs, factors, strict=True)]
    a, b, c = (words.from_ints(prime, each) for each in (xs, ys, expected))
    return a, b, c


def check_long_call(gpu: gx.PersistentVulkanBackend, device_local: bool) -> None:
    a, b, expected = make_long_call()
    np.testing.assert_array_equal(gpu.run(LONG, a, b, device_local=device_local), expected)


@on_both_paths
@pytest.mark.parametrize("times", [1, 2])
def test_the_call_after_an_interrupted_one_is_exact(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    device_local: bool,
    times: int,
) -> None:
    # The second Ctrl-C arrives while the interrupted chunk is waited for.
    check_long_call(gpu, device_local)
    slots = gpu.stats().slots.misses
    interrupt_waits(monkeypatch, times)
    in_flight = InFlightTracker(gpu, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        check_long_call(gpu, device_local)
    assert gpu.stats().slots.in_use == 0
    check_long_call(gpu, device_local)
    assert in_flight.touched == []
    assert gpu.stats().slots.misses - slots <= times - 1


@pytest.mark.parametrize("times", [1, 2])
def test_close_may_follow_an_interrupted_call(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    gc.collect()  # tests before may have left devices to it
    before = binding.count_live_objects()
    gpu = fresh_gpu()
    interrupt_waits(monkeypatch, times)
    in_flight = InFlightTracker(gpu, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        check_long_call(gpu, device_local=True)
    gpu.close()
    assert in_flight.touched == []
    assert binding.count_live_objects() == before


def test_an_interrupted_call_leaves_no_status_word_to_the_next(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No call has read the status word; it must not raise ElementRangeError in the next call.
    gpu = fresh_gpu()
    good = words.from_ints(BLS12_381_FQ, elements(BLS12_381_FQ, 50, 1))
    bad = np.full_like(good, np.iinfo(np.uint64).max)
    gpu.run(FQ_ADD, good, good)
    interrupt_waits(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        gpu.run(FQ_ADD, bad, good)
    expected = words.add(BLS12_381_FQ, good, good)
    np.testing.assert_array_equal(gpu.run(FQ_ADD, good, good), expected)


@on_both_paths
@pytest.mark.parametrize("handed_over", [True, False])
def test_an_interrupt_inside_a_submission_is_waited_for(
    gpu: gx.PersistentVulkanBackend,
    monkeypatch: pytest.MonkeyPatch,
    device_local: bool,
    handed_over: bool,
) -> None:
    """Whether or not the device received the work, nothing of it is reused before it is done."""
    check_long_call(gpu, device_local)
    in_flight = InFlightTracker(gpu, monkeypatch)
    with monkeypatch.context() as patch:
        interrupt_submissions(patch, 1, handed_over=handed_over)
        with pytest.raises(KeyboardInterrupt):
            check_long_call(gpu, device_local)
    assert gpu.stats().slots.in_use == 0
    check_long_call(gpu, device_local)
    assert in_flight.touched == []
