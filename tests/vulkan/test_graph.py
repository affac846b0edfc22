"""Graphs: recorded once, run with other inputs, freed with what they hold."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.dispatch import Dispatch
from gpu_executor.vulkan.timeline import Timeline
from tests.conftest import OpenGpu
from tests.support.jobs import ADD_U32
from tests.vulkan.test_command_stream import COUNT, devices, numbers, sum_of

FR, MANY = gx.fields.BLS12_381_FR, 64


def test_what_is_recorded_is_done_when_it_is_called(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = devices(gpu), numbers(1), numbers(2)
    x, step = device.put(a), device.put(b)
    submitted = device.stream.submissions
    with gpu.graph(x) as graph:
        y = x
        for _ in range(10):
            y = sum_of(device, y, step)
    assert (len(graph), device.stream.submissions) == (10, submitted)
    graph()
    assert device.stream.submissions == submitted + 1
    np.testing.assert_array_equal(y.numpy(), a + np.uint32(10) * b)


def test_other_inputs_give_other_results(gpu: gx.PersistentVulkanBackend) -> None:
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
    words = gpu.to_device(FR.encode([5] * MANY)).numpy()
    graph(words)
    assert list(y.ints()) == [20] * MANY


def test_many_runs_in_a_row_are_in_order(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = devices(gpu), numbers(1), numbers(2)
    x, step = device.put(a), device.put(b)
    with gpu.graph() as graph:
        y = sum_of(device, x, step)
        device.submit([Dispatch(ADD_U32, (y, step, x), COUNT)])
    for _ in range(50):
        graph()
    np.testing.assert_array_equal(x.numpy(), a + np.uint32(100) * b)


def test_other_threads_go_on_while_one_records(gpu: gx.PersistentVulkanBackend) -> None:
    device, a = devices(gpu), numbers(1)
    x, results = device.put(a), []
    with gpu.graph(x) as graph:
        y = sum_of(device, x, x)
        thread = threading.Thread(target=lambda: results.append(sum_of(device, x, x).numpy()))
        thread.start()
        thread.join()
    np.testing.assert_array_equal(results[0], 2 * a)
    graph()
    np.testing.assert_array_equal(y.numpy(), 2 * a)


def test_a_graph_keeps_its_arrays_and_frees_them(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device, a = devices(gpu), numbers(1)
    x = device.put(a)
    with gpu.graph(x) as graph:
        y = sum_of(device, sum_of(device, x, x), x)
    sets = gpu.stats().descriptors.sets_used
    inputs = weakref.ref(x.storage)
    del x
    gc.collect()
    graph()
    np.testing.assert_array_equal(y.numpy(), 3 * a)
    assert inputs() is not None
    del graph
    gc.collect()
    sum_of(device, y, y)
    device.stream.wait()
    gc.collect()
    assert inputs() is None
    assert gpu.stats().descriptors.sets_used < sets + 1


def test_what_a_graph_cannot_do_is_said_in_words(fresh_gpu: OpenGpu) -> None:
    gpu = fresh_gpu()
    device = devices(gpu)
    x = device.put(numbers(1))
    graph = gpu.graph(x)
    with pytest.raises(gx.GpuError, match="not recorded yet"):
        graph()
    with graph:
        y = sum_of(device, x, x)
        with pytest.raises(gx.GpuError, match="no result to fetch"):
            y.numpy()
        with pytest.raises(gx.GpuError, match="being recorded already"), gpu.graph():
            pass
    with pytest.raises(gx.GpuError, match="recorded already"), graph:
        pass
    with pytest.raises(gx.errors.ArgumentTypeError, match="1 inputs and got 2"):
        graph(x, x)
    with pytest.raises(gx.errors.ArgumentShapeError, match="shape"):
        graph(x[:100])
    with pytest.raises(gx.errors.ArgumentTypeError, match="are device arrays"):
        gpu.graph(numbers(1))
    with pytest.raises(ZeroDivisionError), gpu.graph(x) as broken:
        sum_of(device, x, x)
        raise ZeroDivisionError
    with pytest.raises(gx.GpuError, match="not recorded yet"):
        broken()
    np.testing.assert_array_equal(sum_of(device, x, x).numpy(), 2 * numbers(1))
    gpu.close()
    with pytest.raises(gx.errors.ClosedError):
        graph()


def test_a_graph_that_is_dropped_while_it_runs_is_not_waited_for(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    device, a = devices(gpu), numbers(1, 1 << 20)
    x = device.put(a)
    device.stream.wait()
    waits: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(Timeline, "wait", lambda *arguments: waits.append(arguments))
        for _ in range(3):
            with gpu.graph(x) as graph:
                y = sum_of(device, sum_of(device, x, x), x)
            graph()
            del graph
            gc.collect()
        z = sum_of(device, y, x)
    assert waits == []
    np.testing.assert_array_equal(z.numpy(), 4 * a)
    device.stream.wait()
    assert not device.stream._graphs
