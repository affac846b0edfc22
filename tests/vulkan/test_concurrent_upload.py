"""Copies to the device beside the command stream. A device without a transfer queue copies on a
second timeline of its compute queue here."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ClosedError, OutOfMemoryError
from gpu_executor.msm import parts as msm_parts
from gpu_executor.vulkan import binding, device_memory, memory, transfers
from gpu_executor.vulkan.device_storage import VulkanStorage
from gpu_executor.vulkan.timeline import Timeline
from gpu_executor.vulkan.transfers import ConcurrentUpload, Upload
from tests.conftest import OpenGpu
from tests.support.curves_under_test import OVER_MERSENNE31, draw_points
from tests.support.device_arrays import draw_words, get_device_memory, submit_sum
from tests.support.interrupts import InFlightTracker, interrupt_submissions, interrupt_waits

Gpu = gx.PersistentVulkanBackend
OpenOne = Callable[[], Gpu]
SEGMENT = 1 << 12
SIZES = [1, 3, 4, SEGMENT - 1, SEGMENT, SEGMENT + 4, 3 * SEGMENT + 8, 7 * SEGMENT]
"""Bytes of an array: below a segment, and up to seven segments."""


@pytest.fixture
def open_gpu(staged_inputs: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> OpenOne:
    """Opens a backend that copies beside its command stream, in small segments."""
    monkeypatch.setattr(device_memory, "MIN_CONCURRENT_BYTES", 1)
    monkeypatch.setattr(transfers, "SEGMENT_BYTES", SEGMENT)

    def open_one() -> Gpu:
        gpu = fresh_gpu()
        memory, resources = get_device_memory(gpu), gpu._session.resources
        if memory._concurrent is None:
            queue = Timeline(resources.device, resources.device.queues.compute)
            gpu._session._opened.callback(queue.close)
            memory._concurrent = ConcurrentUpload(resources, memory._mapped, memory.stream, queue)
            gpu._session._opened.callback(memory._concurrent.close)
        return gpu

    return open_one


@pytest.fixture
def filling(direct_inputs: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """A backend whose host writes to device memory: it copies nothing there."""
    monkeypatch.setattr(device_memory, "MIN_CONCURRENT_BYTES", 1)
    monkeypatch.setattr(Upload, "copy", None)  # a call would raise
    monkeypatch.setattr(ConcurrentUpload, "copy", None)
    return fresh_gpu()


@pytest.mark.parametrize("waits", [False, True])
def test_the_host_fills_device_memory(filling: Gpu, *, waits: bool) -> None:
    device = get_device_memory(filling)
    words = draw_words(1, 6000).reshape(20, 300)
    for array in (words, words[::-2, 5:], words.T, words.view(np.uint8)[:3, :7], words > 9):
        made = device.put_ahead(array, waits=waits)
        assert made.dtype == array.dtype and made.shape == array.shape
        assert np.array_equal(made.numpy(), array)
    swapped = words.astype(words.dtype.newbyteorder())
    assert np.array_equal(device.put_ahead(swapped, waits=waits).numpy(), words)


def test_operations_see_what_the_host_fills(filling: Gpu) -> None:
    """Memory that the device may still read is not filled."""
    device = get_device_memory(filling)
    total, expected = device.put_ahead(draw_words(0)), draw_words(0)
    for seed in range(1, 30):
        words = draw_words(seed)
        total = submit_sum(device, total, device.put_ahead(words))
        expected = expected + words
    assert np.array_equal(total.numpy(), expected)


def test_memory_in_use_is_not_filled_after_an_array_that_nothing_used(
    direct_inputs: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An array gets memory that the device still reads, and is dropped before it is used."""
    monkeypatch.setattr(device_memory, "MIN_CONCURRENT_BYTES", 1)
    gpu, field, ones = fresh_gpu(), gx.fields.BLS12_381_FR, np.ones(1 << 18, np.uint32)
    device, busy = get_device_memory(gpu), gpu.to_device(field.random(1 << 13, seed=1))
    first, zeros = device.put_ahead(ones), device.put_ahead(ones - 1)
    slow = busy ** (2**200 + 1)
    gpu.synchronize()
    slow = busy ** (2**200 + 1)
    total = submit_sum(device, first, zeros)
    del first
    device.empty(ones.shape, ones.dtype)
    device.put_ahead(ones + 6)
    assert (total.numpy() == 1).all()
    assert slow.shape == busy.shape


def test_no_device_memory_to_fill_means_a_copy(
    direct_inputs: None, fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Host memory stands in for the inputs of calls, and not for device arrays."""
    monkeypatch.setattr(device_memory, "MIN_CONCURRENT_BYTES", 1)
    device, words = get_device_memory(fresh_gpu()), draw_words(1)
    make_block = memory._make_block

    def refuse_inputs(opened: Any, purpose: memory.Purpose, nbytes: int) -> memory.Block:
        if purpose is memory.Purpose.INPUT:
            raise OutOfMemoryError("no memory")
        return make_block(opened, purpose, nbytes)

    monkeypatch.setattr(memory, "_make_block", refuse_inputs)
    made = device.put_ahead(words)
    assert np.array_equal(made.numpy(), words)
    storage = made.storage
    assert isinstance(storage, VulkanStorage)
    assert storage.allocation.block.purpose is memory.Purpose.DEVICE


def test_what_the_host_fills_is_freed(filling: Gpu) -> None:
    device, words = get_device_memory(filling), draw_words(1)
    made = device.put_ahead(words)
    assert filling.stats().memory.bytes_used >= words.nbytes
    del made
    gc.collect()
    device.stream.wait()
    assert filling.stats().memory.bytes_used == 0
    filling.close()
    with pytest.raises(ClosedError):
        device.put_ahead(words)


@pytest.mark.parametrize("size", SIZES)
def test_an_array_arrives_whole(open_gpu: OpenOne, size: int) -> None:
    device = get_device_memory(open_gpu())
    for seed in range(3):
        words = draw_words(seed, size).view(np.uint8)[:size]
        assert np.array_equal(device.put_ahead(words).numpy(), words)


def test_views_and_axes_are_copied(open_gpu: OpenOne) -> None:
    device = get_device_memory(open_gpu())
    words = draw_words(1, 6000).reshape(20, 300)
    for view in (words, words[::-2, 5:], words.T):
        assert np.array_equal(device.put_ahead(view).numpy(), view)
    assert device.put_ahead(words[:0]).shape == (0, 300)


def test_mapped_arrays_are_copied_from_where_they_are(
    open_gpu: OpenOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = open_gpu()
    device = get_device_memory(gpu)
    mapped = gpu.asarray(draw_words(1, 5 * SEGMENT))
    with monkeypatch.context() as patched:
        patched.setattr(transfers, "StagingSegment", None)  # a call would raise
        copies = [device.put_ahead(view) for view in (mapped, mapped[SEGMENT // 4 :])]
    assert np.array_equal(copies[0].numpy(), mapped)
    assert np.array_equal(copies[1].numpy(), mapped[SEGMENT // 4 :])


def test_operations_see_the_copies(open_gpu: OpenOne) -> None:
    """New memory is used again and again while the device computes."""
    device = get_device_memory(open_gpu())
    total, expected = device.put(np.zeros(5000, np.uint32)), np.zeros(5000, np.uint32)
    for seed in range(30):
        words = draw_words(seed)
        total = submit_sum(device, total, device.put_ahead(words))
        expected = expected + words
    assert np.array_equal(total.numpy(), expected)


@pytest.mark.parametrize(
    ("interrupted", "times"),
    [("waits", 1), ("waits", 3), ("submissions", 1), ("submissions", 2), ("handed over", 3)],
)
def test_an_interrupt_frees_nothing_in_use(
    open_gpu: OpenOne,
    monkeypatch: pytest.MonkeyPatch,
    interrupted: str,
    times: int,
) -> None:
    before = binding.count_live_objects()
    gpu = open_gpu()
    device, words = get_device_memory(gpu), draw_words(1, 5 * SEGMENT)
    device.put_ahead(words)
    with monkeypatch.context() as patched:
        in_flight = InFlightTracker(gpu, patched)
        if interrupted == "waits":
            interrupt_waits(patched, times)
        else:
            interrupt_submissions(patched, times, handed_over=interrupted == "handed over")
        with pytest.raises(KeyboardInterrupt):
            device.put_ahead(words)
            device.put_ahead(words)
        patched.undo()
        assert in_flight.touched == []
    assert np.array_equal(device.put_ahead(words).numpy(), words)
    gc.collect()
    device.stream.wait()
    assert gpu.stats().memory.bytes_used == 0
    gpu.close()
    assert binding.count_live_objects() == before


def test_a_closed_device_takes_no_copies(open_gpu: OpenOne) -> None:
    gpu = open_gpu()
    device = get_device_memory(gpu)
    device.put_ahead(draw_words(1))
    gpu.close()
    with pytest.raises(ClosedError):
        device.put_ahead(draw_words(1))


def test_points_of_the_host_stream_beside_the_computation(
    open_gpu: OpenOne, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(msm_parts, "LEAST_POINTS", 1)
    monkeypatch.setattr(msm_parts, "COPIED_POINTS", 30)
    curve, gpu = OVER_MERSENNE31, open_gpu()
    points, scalars = draw_points(curve, 500, seed=1), curve.scalar_field.random(500, seed=2)
    assert curve.msm(points, scalars, device=gpu) == curve.msm(points, scalars)
