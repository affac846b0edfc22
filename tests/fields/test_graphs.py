"""gx.graph as a context and as a decorator: what it records, for which arrays, what it refuses."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import graphs
from gpu_executor.fields import BLS12_381_FR, GOLDILOCKS, FieldArray
from tests.conftest import OpenGpu
from tests.vulkan.test_command_stream import devices, numbers, sum_of

graph = gx.graph
N = 64
P = BLS12_381_FR.modulus


def on_device(gpu: gx.PersistentVulkanBackend, values: list[int]) -> FieldArray:
    return gpu.to_device(BLS12_381_FR.encode(values))


def test_a_context_finds_its_card_by_its_arrays(gpu: gx.PersistentVulkanBackend) -> None:
    x, y = on_device(gpu, [1] * N), on_device(gpu, [2] * N)
    with graph(x, y) as run:
        z = x * y + 5
    run()
    assert z.ints().tolist() == [7] * N
    run(on_device(gpu, list(range(N))), on_device(gpu, [3] * N))
    assert z.ints().tolist() == [3 * i + 5 for i in range(N)]


def test_a_decorated_function_is_recorded_once_and_gives_new_results(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    calls = []

    @graph
    def tripled(x: FieldArray) -> FieldArray:
        """Three times x, the long way."""
        calls.append(x)
        return BLS12_381_FR.intt(BLS12_381_FR.ntt(x) * 3)

    assert (tripled.__name__, tripled.__doc__) == ("tripled", "Three times x, the long way.")
    found = [tripled(on_device(gpu, [k * i for i in range(N)])) for k in range(5)]
    for k, each in enumerate(found):
        assert each.ints().tolist() == [3 * k * i for i in range(N)]
    assert len(calls) == 1


def test_each_kind_of_arrays_is_recorded_for_itself(gpu: gx.PersistentVulkanBackend) -> None:
    calls = []

    @graph
    def squared(x: FieldArray) -> FieldArray:
        calls.append(x.shape)
        return x * x

    for _ in range(2):
        assert squared(on_device(gpu, [3] * 5)).ints().tolist() == [9] * 5
        assert squared(on_device(gpu, [4] * 7)).ints().tolist() == [16] * 7
        other = gpu.to_device(GOLDILOCKS.encode([2**33] * 5))
        assert squared(other).ints().tolist() == [2**66 % GOLDILOCKS.modulus] * 5
    assert calls == [(5,), (7,), (5,)]


def test_few_kinds_are_kept(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MAX_RECORDINGS", 2)
    lengths = []

    @graph
    def doubled(x: FieldArray) -> FieldArray:
        lengths.append(len(x))
        return x + x

    for length in (1, 2, 1, 3, 1, 2):
        assert doubled(on_device(gpu, [5] * length)).ints().tolist() == [10] * length
    assert lengths == [1, 2, 3, 2]


def test_several_results_come_as_they_were_returned(gpu: gx.PersistentVulkanBackend) -> None:
    @graph
    def both(x: FieldArray, y: FieldArray) -> tuple[FieldArray, list[FieldArray]]:
        return x + y, [x * y, x - y]

    total, (product, difference) = both(on_device(gpu, [5]), on_device(gpu, [7]))
    found = [each.ints().tolist() for each in (total, product, difference)]
    assert found == [[12], [35], [P - 2]]


def test_plain_card_arrays_are_recorded_too(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = devices(gpu), numbers(1), numbers(2)

    @graph
    def added(x: gx.DeviceArray, y: gx.DeviceArray) -> gx.DeviceArray:
        return sum_of(device, x, y)

    for _ in range(2):
        np.testing.assert_array_equal(added(device.put(a), device.put(b)).numpy(), a + b)


def test_threads_take_turns(gpu: gx.PersistentVulkanBackend) -> None:
    @graph
    def cubed(x: FieldArray) -> FieldArray:
        return x * x * x

    wrong = []

    def work(start: int) -> None:
        for k in range(start, start + 20):
            if cubed(on_device(gpu, [k] * N)).ints().tolist() != [k**3] * N:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_it_does_not_take_is_an_error_in_words(
    gpu: gx.PersistentVulkanBackend, fresh_gpu: OpenGpu
) -> None:
    x = on_device(gpu, [1, 2])
    with pytest.raises(gx.errors.ArgumentTypeError, match="device arrays, not ndarray"):
        graph(np.zeros(3))  # type: ignore[call-overload]
    with pytest.raises(gx.errors.ArgumentTypeError, match="device arrays, not FieldArray"):
        graph(BLS12_381_FR.encode([1]))
    with pytest.raises(gx.errors.ArgumentTypeError, match="one function, or device arrays"):
        graph(len, x)  # type: ignore[call-overload]
    with pytest.raises(gx.errors.ArgumentTypeError, match="at least one device array"):
        graph(lambda: x)()
    with pytest.raises(gx.errors.ArgumentTypeError, match="must be on one device"):
        graph(x, on_device(fresh_gpu(), [1, 2]))
    with pytest.raises(gx.errors.ArgumentTypeError, match="device arrays, not int"):
        graph(lambda _: 5)(x)
    with pytest.raises(gx.GpuError, match="no result to fetch yet"):
        graph(lambda a: a.numpy())(x)
    assert (x + 1).ints().tolist() == [2, 3], "nothing is recorded any more"
