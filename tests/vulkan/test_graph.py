"""Graphs: recording, calls with other inputs, lifetimes."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.calls.dispatch import Dispatch
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import OpenGpu
from tests.support.device_arrays import COUNT, draw_words, get_device_memory, submit_sum
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_job

FR, MANY = gx.fields.BLS12_381_FR, 64


def test_recorded_operations_run_when_the_graph_is_called(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = get_device_memory(gpu), draw_words(1), draw_words(2)
    x, step = device.put(a), device.put(b)
    submitted = device.stream.submissions
    with gpu.graph(x) as graph:
        y = x
        for _ in range(10):
            y = submit_sum(device, y, step)
    assert (len(graph), device.stream.submissions) == (10, submitted)
    graph()
    assert device.stream.submissions == submitted + 1
    np.testing.assert_array_equal(y.numpy(), a + np.uint32(10) * b)


def test_a_call_takes_other_inputs(gpu: gx.PersistentVulkanBackend) -> None:
    p = FR.modulus
    x = gpu.to_device(FR.encode(range(MANY)))
    with gpu.graph(x) as graph:
        y = FR.intt(FR.ntt(x) * 3) + x
        total = FR.sum(y)
    for number in range(5):
        values = [pow(7, number + index, p) for index in range(MANY)]
        graph(gpu.to_device(FR.encode(values)))
        assert list(y.ints()) == [4 * value % p for value in values]
        assert total.ints() == 4 * sum(values) % p
    with pytest.raises(gx.errors.ArgumentTypeError, match="expected a FieldArray, found ndarray"):
        graph(gpu.to_device(FR.encode([5] * MANY)).numpy())


def test_arguments_are_converted_to_the_form_of_the_input(gpu: gx.PersistentVulkanBackend) -> None:
    x = gpu.to_device(FR.encode(range(MANY)))
    with gpu.graph(x) as graph:
        y = x * 3
    canonical = FR.encode([5] * MANY)
    assert canonical.form != x.form
    graph(canonical)
    assert list(y.ints()) == [15] * MANY
    graph(gpu.to_device(FR.encode([7] * MANY)).in_form("canonical"))
    assert list(y.ints()) == [21] * MANY
    other = gx.fields.BN254_FR
    with pytest.raises(gx.errors.ArgumentTypeError, match="bn254_fr"):
        graph(gpu.to_device(other.encode([5] * MANY)))
    with pytest.raises(gx.errors.ArgumentShapeError, match="shape"):
        graph(FR.encode([5]))
    assert list(y.ints()) == [21] * MANY


def test_the_inputs_themselves_may_be_passed(gpu: gx.PersistentVulkanBackend) -> None:
    a, b = draw_words(1), draw_words(2)
    x, y = gpu.to_device(a), gpu.to_device(b)
    with gpu.graph(x, y) as graph:
        z = gpu.run(ADD_U32, gpu.run(ADD_U32, x, x), y)
    graph(x, y)
    np.testing.assert_array_equal(z.numpy(), 2 * a + b)
    graph(y, x)
    np.testing.assert_array_equal(z.numpy(), 2 * b + a)
    graph(x[::-1], z)
    np.testing.assert_array_equal(z.numpy(), 2 * b[::-1] + 2 * b + a)


def test_calls_are_recorded(gpu: gx.PersistentVulkanBackend) -> None:
    a, b = draw_words(1), draw_words(2)
    x = gpu.to_device(a)
    with gpu.graph(x) as graph:
        y = gpu.run(ADD_U32, x, b)
        gpu.run(ADD_U32, y[::2], y[1::2], out=x[: COUNT // 2])
        total = gpu.run(gx.kernels.load("reduce_sum_u32"), x)
    np.testing.assert_array_equal(x.numpy(), a)
    for _ in range(2):
        graph(a)
        expected = a.copy()
        expected[: COUNT // 2] = (a + b)[::2] + (a + b)[1::2]
        np.testing.assert_array_equal(x.numpy(), expected)
        assert int(total.numpy()) == int(expected.sum(dtype=np.uint32))


def test_results_cannot_be_read_before_the_graph_has_run(gpu: gx.PersistentVulkanBackend) -> None:
    x = gpu.to_device(draw_words(1))
    with gpu.graph(x) as graph:
        y = gpu.run(ADD_U32, x, x)
        constant = gpu.to_device(draw_words(2))
    for use in (y.numpy, y[::2].numpy, lambda: gpu.run(ADD_U32, y, x), y.copy):
        with pytest.raises(gx.GpuError, match="has not run yet"):
            use()
    np.testing.assert_array_equal(constant.numpy(), draw_words(2))
    graph()
    np.testing.assert_array_equal(y.numpy(), 2 * draw_words(1))


def test_checked_kernels_report_errors_of_every_replay(gpu: gx.PersistentVulkanBackend) -> None:
    a, b = field_job(100)
    bad = a.copy()
    bad[7] = TOO_LARGE
    x, y = gpu.to_device(a), gpu.to_device(b)
    with gpu.graph(x) as graph:
        z = gpu.run(FQ_ADD, x, y)
    graph()
    check_sums([z.numpy()], [(a, b)])
    graph(bad)
    with pytest.raises(gx.errors.ElementRangeError, match="element 7 of argument 0"):
        z.numpy()
    gpu.synchronize()


def test_repeated_calls_run_in_order(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = get_device_memory(gpu), draw_words(1), draw_words(2)
    x, step = device.put(a), device.put(b)
    with gpu.graph() as graph:
        y = submit_sum(device, x, step)
        device.submit([Dispatch(ADD_U32, (y, step, x), COUNT)])
    for _ in range(50):
        graph()
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(100) * b)


def test_other_threads_are_not_recorded(gpu: gx.PersistentVulkanBackend) -> None:
    device, a = get_device_memory(gpu), draw_words(1)
    x, results = device.put(a), []
    with gpu.graph(x) as graph:
        y = submit_sum(device, x, x)
        thread = threading.Thread(target=lambda: results.append(submit_sum(device, x, x).numpy()))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(results[0], 2 * a)
    graph()
    np.testing.assert_array_equal(y.numpy(), 2 * a)


def test_a_graph_keeps_its_arrays_alive_until_it_is_dropped(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device, a = get_device_memory(gpu), draw_words(1)
    x = device.put(a)
    with gpu.graph(x) as graph:
        y = submit_sum(device, submit_sum(device, x, x), x)
    sets = gpu.stats().descriptors.sets_used
    inputs = weakref.ref(x.storage)
    del x
    gc.collect()
    graph()
    np.testing.assert_array_equal(y.numpy(), 3 * a)
    assert inputs() is not None
    del graph
    gc.collect()
    submit_sum(device, y, y)
    device.stream.wait()
    gc.collect()
    assert inputs() is None
    assert gpu.stats().descriptors.sets_used <= sets + 1


def test_wrong_uses_of_a_graph_are_rejected(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device = get_device_memory(gpu)
    x = device.put(draw_words(1))
    graph = gpu.graph(x)
    with pytest.raises(gx.GpuError, match="not recorded yet"):
        graph()
    with graph:
        y = submit_sum(device, x, x)
        with pytest.raises(gx.GpuError, match="no result to fetch"):
            y.numpy()
        with pytest.raises(gx.GpuError, match="being recorded already"), gpu.graph():
            pass
    with pytest.raises(gx.GpuError, match="recorded already"), graph:
        pass
    with pytest.raises(gx.errors.ArgumentTypeError, match="1 input and got 2"):
        graph(x, x)
    with pytest.raises(gx.errors.ArgumentShapeError, match="shape"):
        graph(x[:100])
    with pytest.raises(gx.errors.ArgumentTypeError, match="takes and returns device arrays"):
        gpu.graph(draw_words(1))
    with pytest.raises(ZeroDivisionError), gpu.graph(x) as broken:
        submit_sum(device, x, x)
        raise ZeroDivisionError
    with pytest.raises(gx.GpuError, match="not recorded yet"):
        broken()
    np.testing.assert_array_equal(submit_sum(device, x, x).numpy(), 2 * draw_words(1))
    gpu.close()
    with pytest.raises(gx.errors.ClosedError):
        graph()


def test_dropping_a_running_graph_does_not_wait(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    device, a = get_device_memory(gpu), draw_words(1, 1 << 20)
    x = device.put(a)
    device.stream.wait()
    waits: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(Timeline, "wait", lambda *arguments: waits.append(arguments))
        for _ in range(3):
            with gpu.graph(x) as graph:
                y = submit_sum(device, submit_sum(device, x, x), x)
            graph()
            del graph
            gc.collect()
        z = submit_sum(device, y, x)
    assert waits == []
    np.testing.assert_array_equal(z.numpy(), 4 * a)
    device.stream.wait()
    assert not device.stream._released_graphs
