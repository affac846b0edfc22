"""The command stream: order, barriers, lifetimes, limits, interrupts, copies."""

from __future__ import annotations

import dataclasses
import gc
import threading
import weakref

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.dispatch import ArrayCopy, Dispatch
from gpu_executor.kernels.catalogue import COPY_UNIT_BYTES, copy_kernel
from gpu_executor.vulkan import binding, command_stream, step_recorder
from tests.conftest import OpenGpu
from tests.support.device_arrays import COUNT, WORD, draw_words, get_device_memory, submit_sum
from tests.support.interrupts import interrupt_submissions
from tests.support.jobs import ADD_U32, FQ_ADD

LONG = 1 << 17
"""Elements of a sum that lavapipe computes for longer than the host needs to submit ten."""


def test_each_dispatch_sees_the_results_of_earlier_ones(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = get_device_memory(gpu), draw_words(1), draw_words(2)
    x, step = device.put(a), device.put(b)
    for _ in range(200):
        x = submit_sum(device, x, step)
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(200) * b)


def test_a_submission_has_barriers_only_between_dependent_steps(fresh_gpu: OpenGpu) -> None:
    device = get_device_memory(fresh_gpu())
    a, b = device.put(draw_words(1)), device.put(draw_words(2))
    apart = [device.empty((COUNT,), WORD) for _ in range(3)]
    device.submit([Dispatch(ADD_U32, (a, b, c), COUNT) for c in apart])
    assert device.stream.barriers == 0
    x, y = (device.empty((COUNT,), WORD) for _ in range(2))
    device.submit(
        [
            Dispatch(ADD_U32, (a, b, x), COUNT),
            Dispatch(ADD_U32, (x, b, y), COUNT),  # reads what was written
            Dispatch(ADD_U32, (a, a, x), COUNT),  # writes what was read
            Dispatch(ADD_U32, (b, b, x), COUNT),  # writes what was written
        ]
    )
    assert device.stream.barriers == 3
    np.testing.assert_array_equal(y.numpy(), draw_words(1) + 2 * draw_words(2))
    np.testing.assert_array_equal(x.numpy(), 2 * draw_words(2))
    for c in apart:
        np.testing.assert_array_equal(c.numpy(), draw_words(1) + draw_words(2))


def test_a_copy_sees_what_was_written_before_a_barrier_between_dispatches(
    fresh_gpu: OpenGpu,
) -> None:
    """The validation layer reports the hazards: a copy is not part of that barrier."""
    device = get_device_memory(fresh_gpu())
    a, b = device.put(draw_words(1)), device.put(draw_words(2))
    x, y, z = (device.empty((COUNT,), WORD) for _ in range(3))
    device.submit(
        [
            Dispatch(ADD_U32, (a, b, x), COUNT),
            Dispatch(ADD_U32, (x, b, y), COUNT),
            ArrayCopy(x, z),  # reads what was written before the barrier
        ]
    )
    assert device.stream.barriers == 2
    np.testing.assert_array_equal(z.numpy(), draw_words(1) + draw_words(2))
    device.submit(
        [
            Dispatch(ADD_U32, (a, b, x), COUNT),
            Dispatch(ADD_U32, (x, b, y), COUNT),
            ArrayCopy(y, a),  # writes what was read before the barrier
        ]
    )
    np.testing.assert_array_equal(a.numpy(), draw_words(1) + 2 * draw_words(2))


def test_unreferenced_arrays_live_until_the_device_has_finished(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device = get_device_memory(gpu)
    a, b = draw_words(3, LONG), draw_words(4, LONG)
    x, step = device.put(a), device.put(b)
    for _ in range(20):
        x = submit_sum(device, x, step)  # drops the last reference to the earlier result
        gpu.run(ADD_U32, draw_words(5), draw_words(6))  # allocates memory meanwhile
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(20) * b)
    storage = weakref.ref(x.storage)
    del x, step
    device.stream.wait()
    gc.collect()
    assert storage() is None


def test_submissions_beyond_the_limit_wait_for_the_oldest(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_stream, "MAX_IN_FLIGHT", 2)
    device, a, b = get_device_memory(fresh_gpu()), draw_words(1), draw_words(2)
    x, step = device.put(a), device.put(b)
    held = [x]
    for _ in range(30):
        x = submit_sum(device, x, step)
        held.append(x)
    assert len(device.stream._in_flight) <= 2
    for number, each in enumerate(held):
        np.testing.assert_array_equal(each.numpy(), a + np.uint32(number) * b)


def test_repeated_operations_are_recorded_once(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device, a, b = get_device_memory(gpu), draw_words(1), draw_words(2)
    x, step = device.put(a), device.put(b)
    for _ in range(3):
        submit_sum(device, x, step).numpy()
    recorded = device.stream.recordings
    for _ in range(50):
        np.testing.assert_array_equal(submit_sum(device, x, step).numpy(), a + b)
    assert device.stream.recordings == recorded
    # The same dispatch on other arrays, and another one on the same arrays.
    np.testing.assert_array_equal(submit_sum(device, step, step).numpy(), 2 * b)
    difference = gpu.run(gx.kernels.load("vector_add_u32"), x, x)
    np.testing.assert_array_equal(difference.numpy(), 2 * a)


def test_repeated_calls_on_strided_views_are_recorded_once(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device, words, add = get_device_memory(gpu), draw_words(1), gx.kernels.load("vector_add_u32")
    x = device.put(words)
    for _ in range(3):
        gpu.run(add, x[::3], x[::3]).numpy()
    recorded = device.stream.recordings
    for _ in range(20):
        np.testing.assert_array_equal(gpu.run(add, x[::3], x[::3]).numpy(), 2 * words[::3])
    assert device.stream.recordings == recorded


def test_recorded_commands_do_not_outlive_the_buffers_that_they_bind(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device = get_device_memory(gpu)
    for number in range(3):
        a = draw_words(number, LONG)
        x = device.put(a)
        np.testing.assert_array_equal(submit_sum(device, x, x).numpy(), 2 * a)
        del x
        gc.collect()
        assert gpu.trim() > 0  # destroys the buffers; the driver may use their handles again


def test_calls_and_the_command_stream_see_each_others_results(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    device, a, b = get_device_memory(gpu), draw_words(1, 100_000), draw_words(2, 100_000)
    x, step = device.put(a), device.put(b)
    for _ in range(5):
        x = submit_sum(device, x, step)
        x = gpu.run(ADD_U32, x, step, keep=True)
    np.testing.assert_array_equal(gpu.run(ADD_U32, x, step), a + np.uint32(11) * b)


def test_many_threads_share_the_command_stream(gpu: gx.PersistentVulkanBackend) -> None:
    device, wrong = get_device_memory(gpu), []

    def work(seed: int) -> None:
        a, b = draw_words(seed), draw_words(seed + 100)
        x, step = device.put(a), device.put(b)
        for _ in range(30):
            x = submit_sum(device, x, step)
        if not np.array_equal(x.numpy(), a + np.uint32(30) * b):
            wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_slices_and_reshaped_arrays_are_views(gpu: gx.PersistentVulkanBackend) -> None:
    device, a = get_device_memory(gpu), draw_words(7, 4096)
    x = device.put(a)
    np.testing.assert_array_equal(x[1024:3072].numpy(), a[1024:3072])
    np.testing.assert_array_equal(x.reshape(4, -1)[2].numpy(), a.reshape(4, -1)[2])
    np.testing.assert_array_equal(x.reshape(2, 2, 1024)[-1].numpy(), a.reshape(2, 2, 1024)[-1])
    np.testing.assert_array_equal(
        submit_sum(device, x[:2048], x[2048:]).numpy(), a[:2048] + a[2048:]
    )
    np.testing.assert_array_equal(  # unaligned inputs are copied first
        submit_sum(device, x[1:-1], x[2:]).numpy(), a[1:-1] + a[2:]
    )
    y = device.put(np.zeros(10, np.uint32))
    device.submit([ArrayCopy(x[3:8], y[1:6]), ArrayCopy(x[:2], y[8:])])
    assert y.numpy().tolist() == [0, *a[3:8], 0, 0, *a[:2]]
    assert x[5:3].shape == (0,)
    with pytest.raises(gx.errors.ArgumentShapeError, match="reshaped"):
        x.reshape(3, -1)
    with pytest.raises(IndexError):
        x[4096]


def test_arrays_that_cannot_be_bound_are_rejected(fresh_gpu: OpenGpu) -> None:
    gpu, other = fresh_gpu(), fresh_gpu()
    device = get_device_memory(gpu)
    x = device.put(draw_words(1))
    with pytest.raises(gx.errors.ArgumentShapeError, match="cannot be copied"):
        device.submit([ArrayCopy(x, x[1:])])
    with pytest.raises(gx.errors.ArgumentTypeError, match="another backend"):
        submit_sum(device, x, get_device_memory(other).put(draw_words(1)))
    with pytest.raises(gx.errors.KernelError, match="push constants"):
        device.submit([Dispatch(ADD_U32, (x, x, x), COUNT, push_words=tuple(range(40)))])
    with pytest.raises(gx.errors.DeviceLacksError, match="work-groups"):
        device.submit([Dispatch(ADD_U32, (x, x, x), COUNT, groups=1 << 31)])
    np.testing.assert_array_equal(submit_sum(device, x, x).numpy(), 2 * draw_words(1))


def test_a_closed_backend_rejects_dispatches(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device = get_device_memory(gpu)
    x = device.put(draw_words(1))
    y = submit_sum(device, x, x)
    gpu.close()
    with pytest.raises(gx.errors.ClosedError):
        submit_sum(device, x, y)


def test_a_dispatch_with_a_status_word_needs_an_error(gpu: gx.PersistentVulkanBackend) -> None:
    device = get_device_memory(gpu)
    x = device.put(np.zeros((10, 6), np.uint64))
    with pytest.raises(gx.errors.KernelError, match="make_error"):
        device.submit([Dispatch(FQ_ADD, (x, x, x), 10)])


def test_a_failed_submission_keeps_track_of_what_is_in_flight(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, a, b = get_device_memory(fresh_gpu()), draw_words(1, LONG), draw_words(2, LONG)
    x, step = device.put(a), device.put(b)
    for _ in range(5):
        x = submit_sum(device, x, step)

    def fails(*_: object) -> None:
        raise gx.OutOfMemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(device.stream._timeline, "submit", fails)
        with pytest.raises(gx.OutOfMemoryError):
            submit_sum(device, x, step)
    assert len(device.stream._in_flight) <= 7  # with two uploads
    device.stream.wait()
    assert not device.stream._in_flight
    x = submit_sum(device, x, step)
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(6) * b)


def test_a_steady_loop_allocates_no_memory_and_no_descriptor_sets(fresh_gpu: OpenGpu) -> None:
    gpu, field = fresh_gpu(), gx.fields.BLS12_381_FR
    values = [pow(3, index, field.modulus) for index in range(200)]
    x = gpu.to_device(field.encode(values))

    def loop() -> None:
        for _ in range(3 * command_stream.MAX_IN_FLIGHT):
            y = field.mul(x, x)
        assert y.ints()[7] == values[7] ** 2 % field.modulus

    loop()
    before = gpu.stats()
    for _ in range(3):
        loop()
    after = gpu.stats()
    assert after.memory.misses == before.memory.misses
    assert after.memory.bytes_held == before.memory.bytes_held
    assert after.descriptors.sets_used <= command_stream.MAX_CACHED_COMMANDS + 1
    assert after.pipelines.misses == before.pipelines.misses


def test_results_submitted_faster_than_the_device_runs_stay_within_the_memory_limit(
    fresh_gpu: OpenGpu,
) -> None:
    gpu = fresh_gpu(memory_limit=3 << 20)
    device, count = get_device_memory(gpu), 1 << 15
    x = device.put(draw_words(1, count))
    for _ in range(100):
        y = submit_sum(device, x, x)  # 128 KiB each; each drops the one before
    np.testing.assert_array_equal(y.numpy(), 2 * draw_words(1, count))
    assert gpu.stats().memory.bytes_held <= 3 << 20


def test_dispatches_in_flight_do_not_share_descriptor_sets(fresh_gpu: OpenGpu) -> None:
    device = get_device_memory(fresh_gpu())
    arrays = [device.put(draw_words(seed)) for seed in range(20)]
    results = [submit_sum(device, a, b) for a in arrays for b in arrays]
    expected = [draw_words(a) + draw_words(b) for a in range(20) for b in range(20)]
    for result, sums in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result.numpy(), sums)


def test_pipelines_are_evicted_only_when_nothing_in_flight_uses_them(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_recorder, "MAX_CACHED_DISPATCHES", 2)
    monkeypatch.setattr(command_stream, "MAX_CACHED_COMMANDS", 1)
    gpu = fresh_gpu()
    device, fields = get_device_memory(gpu), (gx.fields.BABYBEAR, gx.fields.GOLDILOCKS)
    gpu._session._pipelines._capacity = 2
    for _ in range(3):
        for field in fields:
            x = gpu.to_device(field.encode(range(1, 100)))
            with gpu.graph(x) as graph:
                y = field.inverse(x * x) + x
            graph()
            for _ in range(5):
                y = y * y - x
            assert y.ints()[0] == 15_745_023 % field.modulus  # from 2: 3, 8, 63, 3968
            device.stream.wait()
            del graph
    gc.collect()
    device.submit([])  # frees the last graph
    device.stream._forget_cached()
    for unused in device.stream._unused:
        device.stream._release_references(unused)
    prepared = device.stream._dispatches._prepared
    assert sum(each.uses for each in prepared.values()) == 0
    assert gpu.stats().pipelines.evictions > 0
    gpu.to_device(draw_words(1))
    submit_sum(device, *[device.put(draw_words(1))] * 2)
    assert len(prepared) == 2
    assert gpu.stats().pipelines.kept <= 4


def test_close_frees_what_is_in_flight(fresh_gpu: OpenGpu) -> None:
    before = binding.count_live_objects()
    gpu = fresh_gpu()
    device = get_device_memory(gpu)
    x = device.put(draw_words(1, LONG))
    with gpu.graph(x) as graph:
        y = submit_sum(device, x, x)
    graph()
    for _ in range(10):
        y = submit_sum(device, y, x)
    gpu.close()
    del x, y, graph
    gc.collect()
    assert binding.count_live_objects() == before


@pytest.mark.parametrize("handed_over", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_an_interrupt_while_submitting_leaves_the_command_stream_usable(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch, handed_over: bool, times: int
) -> None:
    device, a, b = get_device_memory(fresh_gpu()), draw_words(1, LONG), draw_words(2, LONG)
    x, step, y = device.put(a), device.put(b), device.empty((LONG,), WORD)
    for _ in range(3):
        x = submit_sum(device, x, step)
    with monkeypatch.context() as patch:
        interrupt_submissions(patch, times, handed_over=handed_over)
        with pytest.raises(KeyboardInterrupt):
            device.submit([Dispatch(ADD_U32, (x, step, y), x.size)])
    storage = device._binder.find_storage(y)
    assert storage.last_use == device.stream._in_flight[-1].value  # the device may run it
    device.submit([Dispatch(ADD_U32, (x, x, y), x.size)])
    np.testing.assert_array_equal(y.numpy(), 2 * (a + np.uint32(3) * b))
    device.stream.wait()
    assert not device.stream._in_flight


def test_a_loop_that_drops_its_results_needs_the_memory_of_two(fresh_gpu: OpenGpu) -> None:
    gpu, a = fresh_gpu(), draw_words(1, LONG)
    device = get_device_memory(gpu)
    x, step = device.put(a), device.put(np.ones_like(a))
    device.stream.wait()
    before = gpu.stats().memory.bytes_used
    for _ in range(20):
        x = submit_sum(device, x, step)
    assert device.stream._in_flight
    assert gpu.stats().memory.bytes_used <= before + 2 * a.nbytes
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(20))
    del x, step
    device.stream.wait()
    memory = gpu.stats().memory
    assert memory.bytes_used - memory.bytes_in_arrays == before - 2 * a.nbytes


def test_an_upload_to_reused_memory_waits_for_the_operation_that_reads_it(
    fresh_gpu: OpenGpu,
) -> None:
    device = get_device_memory(fresh_gpu())
    a, b, c = (draw_words(seed, LONG) for seed in (1, 2, 3))
    x, y = device.put(a), device.put(b)
    slow = submit_sum(device, x, y)
    for _ in range(10):
        slow = submit_sum(device, slow, y)
    result = submit_sum(device, slow, x)
    memory = device._find_storage(x).allocation.offset
    del x
    uploaded = device.put(c)  # gets the memory of x, which `result` is still computed from
    assert device._find_storage(uploaded).allocation.offset == memory
    np.testing.assert_array_equal(result.numpy(), 2 * a + np.uint32(11) * b)
    np.testing.assert_array_equal(uploaded.numpy(), c)


def test_the_copy_kernel_copies(gpu: gx.PersistentVulkanBackend) -> None:
    device, a = get_device_memory(gpu), draw_words(1, 10_000)
    x, y = device.put(a), device.empty((10_000,), WORD)
    device.submit([Dispatch(copy_kernel(), (x, y), x.nbytes // COPY_UNIT_BYTES, grid_stride=True)])
    np.testing.assert_array_equal(y.numpy(), a)


@pytest.mark.parametrize("begin", [0, 4, 12, 16, 64, 256])
@pytest.mark.parametrize("size", [0, 1, 4, 5, 64, 1000])
def test_copies_by_kernel_and_by_the_driver_are_exact(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch, begin: int, size: int
) -> None:
    """Aligned for the kernel or not, whole units or not; words outside the copy do not change."""
    device, a = get_device_memory(gpu), draw_words(1, 2000)
    monkeypatch.setattr(device._binder, "_kernel_copy_bytes", 16)
    info = dataclasses.replace(device.info, kind="discrete")
    monkeypatch.setattr(device._binder, "_info", info)
    x, y = device.put(a), device.put(np.zeros(2000, np.uint32))
    dispatched = device.stream.dispatches
    device.submit([ArrayCopy(x[begin : begin + size], y[begin : begin + size])])
    by_kernel = (
        size >= 4 and size % 4 == 0 and begin % (info.limits.buffer_offset_alignment // 4) == 0
    )
    assert device.stream.dispatches - dispatched == by_kernel
    expected = np.zeros(2000, np.uint32)
    expected[begin : begin + size] = a[begin : begin + size]
    np.testing.assert_array_equal(y.numpy(), expected)
