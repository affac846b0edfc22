"""`gx.graph` as a context manager and as a decorator."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor import graphs
from gpu_executor.fields import BLS12_381_FR, GOLDILOCKS, FieldArray
from tests.conftest import OpenGpu
from tests.support.curves_under_test import SMALL
from tests.support.device_arrays import draw_words, get_device_memory, submit_sum

graph = gx.graph
N = 64
P = BLS12_381_FR.modulus


def put_on_device(gpu: gx.PersistentVulkanBackend, values: list[int]) -> FieldArray:
    return gpu.to_device(BLS12_381_FR.encode(values))


def test_a_context_finds_its_device_by_its_arrays(gpu: gx.PersistentVulkanBackend) -> None:
    x, y = put_on_device(gpu, [1] * N), put_on_device(gpu, [2] * N)
    with graph(x, y) as run:
        z = x * y + 5
    run()
    assert z.ints().tolist() == [7] * N
    run(put_on_device(gpu, list(range(N))), put_on_device(gpu, [3] * N))
    assert z.ints().tolist() == [3 * i + 5 for i in range(N)]


def test_a_decorated_function_is_recorded_once_and_returns_new_arrays(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    calls = []

    @graph
    def triple(x: FieldArray) -> FieldArray:
        """Three times x, by way of a transform."""
        calls.append(x)
        return BLS12_381_FR.intt(BLS12_381_FR.ntt(x) * 3)

    assert (triple.__name__, triple.__doc__) == ("triple", "Three times x, by way of a transform.")
    found = [triple(put_on_device(gpu, [k * i for i in range(N)])) for k in range(5)]
    for k, each in enumerate(found):
        assert each.ints().tolist() == [3 * k * i for i in range(N)]
    assert len(calls) == 1


def test_each_combination_of_shape_and_field_is_recorded_separately(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    calls = []

    @graph
    def square(x: FieldArray) -> FieldArray:
        calls.append(x.shape)
        return x * x

    for _ in range(2):
        assert square(put_on_device(gpu, [3] * 5)).ints().tolist() == [9] * 5
        assert square(put_on_device(gpu, [4] * 7)).ints().tolist() == [16] * 7
        other = gpu.to_device(GOLDILOCKS.encode([2**33] * 5))
        assert square(other).ints().tolist() == [2**66 % GOLDILOCKS.modulus] * 5
    assert calls == [(5,), (7,), (5,)]


def test_the_least_recently_used_recordings_are_evicted(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "MAX_RECORDINGS", 2)
    lengths = []

    @graph
    def double(x: FieldArray) -> FieldArray:
        lengths.append(len(x))
        return x + x

    for length in (1, 2, 1, 3, 1, 2):
        assert double(put_on_device(gpu, [5] * length)).ints().tolist() == [10] * length
    assert lengths == [1, 2, 3, 2]


def test_tuples_and_lists_of_results_keep_their_structure(gpu: gx.PersistentVulkanBackend) -> None:
    @graph
    def both(x: FieldArray, y: FieldArray) -> tuple[FieldArray, list[FieldArray]]:
        return x + y, [x * y, x - y]

    total, (product, difference) = both(put_on_device(gpu, [5]), put_on_device(gpu, [7]))
    found = [each.ints().tolist() for each in (total, product, difference)]
    assert found == [[12], [35], [P - 2]]


def test_plain_device_arrays_are_recorded_too(gpu: gx.PersistentVulkanBackend) -> None:
    device, a, b = get_device_memory(gpu), draw_words(1), draw_words(2)

    @graph
    def add(x: gx.DeviceArray, y: gx.DeviceArray) -> gx.DeviceArray:
        return submit_sum(device, x, y)

    for _ in range(2):
        np.testing.assert_array_equal(add(device.put(a), device.put(b)).numpy(), a + b)


def test_a_decorated_function_is_safe_from_several_threads(gpu: gx.PersistentVulkanBackend) -> None:
    @graph
    def cube(x: FieldArray) -> FieldArray:
        return x * x * x

    wrong = []

    def work(start: int) -> None:
        for k in range(start, start + 20):
            if cube(put_on_device(gpu, [k] * N)).ints().tolist() != [k**3] * N:
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(1000 * t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arguments_that_are_not_device_arrays_are_rejected(
    gpu: gx.PersistentVulkanBackend, fresh_gpu: OpenGpu
) -> None:
    x = put_on_device(gpu, [1, 2])
    with pytest.raises(gx.errors.ArgumentTypeError, match="device arrays, not ndarray"):
        graph(np.zeros(3))  # type: ignore[call-overload]
    with pytest.raises(gx.errors.ArgumentTypeError, match="device arrays, not FieldArray"):
        graph(BLS12_381_FR.encode([1]))
    with pytest.raises(gx.errors.ArgumentTypeError, match="one function, or device arrays"):
        graph(len, x)  # type: ignore[call-overload]
    with pytest.raises(gx.errors.ArgumentTypeError, match="at least one device array"):
        graph(lambda: x)()
    with pytest.raises(gx.errors.ArgumentTypeError, match="must be on one device"):
        graph(x, put_on_device(fresh_gpu(), [1, 2]))
    with pytest.raises(gx.errors.ArgumentTypeError, match="device arrays, not int"):
        graph(lambda _: 5)(x)
    with pytest.raises(gx.GpuError, match="no result to fetch yet"):
        graph(lambda a: a.numpy())(x)
    assert (x + 1).ints().tolist() == [2, 3], "the failed recordings have ended"


class Scaler:
    """A method that is recorded."""

    def __init__(self, factor: int) -> None:
        self.factor = factor
        self.calls = 0

    @gx.graph
    def scale(self, x: gx.FieldArray, *, add: int = 0, other: Any = None) -> Any:
        self.calls += 1
        result = x * self.factor + add
        return result if other is None else result - other


def test_methods_and_keyword_arguments_are_recorded(gpu: gx.PersistentVulkanBackend) -> None:
    three, five = Scaler(3), Scaler(5)
    x = gpu.to_device(BLS12_381_FR.encode([1, 2, 3]))
    for _ in range(3):
        assert three.scale(x).ints().tolist() == [3, 6, 9]
        assert five.scale(x).ints().tolist() == [5, 10, 15]
        assert three.scale(x, add=1).ints().tolist() == [4, 7, 10]
        assert three.scale(x, add=1, other=x).ints().tolist() == [3, 5, 7]
        assert three.scale(x=x, other=x * 2).ints().tolist() == [1, 2, 3]
    assert (three.calls, five.calls) == (4, 1)
    with pytest.raises(gx.errors.ArgumentTypeError, match="at least one device array"):
        three.scale(1)


# --- errors that a fetch raises ---


def test_an_error_of_one_run_does_not_reach_the_next(gpu: gx.PersistentVulkanBackend) -> None:
    x = put_on_device(gpu, [1, 2])
    with graph(x) as run:
        y = 6 / x
        z = y + 1
    run()
    assert z.tolist() == [7, 4]
    for _ in range(2):
        run(put_on_device(gpu, [1, 0]))
        run(put_on_device(gpu, [3, 2]))  # the results with an error are overwritten
        assert (y.tolist(), z.tolist()) == ([2, 3], [3, 4])
        run(put_on_device(gpu, [0, 1]))
        with pytest.raises(ZeroDivisionError, match="element 0"):
            z.tolist()
        run(put_on_device(gpu, [1, 0]))
        with pytest.raises(ZeroDivisionError, match="element 1"):
            y.tolist()
    with pytest.raises(ZeroDivisionError, match="element 1"):
        gpu.synchronize()  # of the results that were overwritten


def test_every_result_of_a_decorated_function_has_its_own_error(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    @graph
    def divide(x: FieldArray) -> FieldArray:
        return 6 / x

    given = [[1, 2], [1, 0], [3, 2], [0, 1], [6, 1]]
    found = [divide(put_on_device(gpu, each)) for each in given]
    assert [found[k].tolist() for k in (0, 2, 4)] == [[6, 3], [2, 3], [1, 6]]
    for k, index in ((1, 1), (3, 0)):
        with pytest.raises(ZeroDivisionError, match=f"element {index}"):
            found[k].tolist()
    gpu.synchronize()  # all errors were raised


def test_the_errors_of_arguments_reach_results(gpu: gx.PersistentVulkanBackend) -> None:
    captured = put_on_device(gpu, [4, 5])
    outer = put_on_device(gpu, [1, 1]) / put_on_device(gpu, [0, 1])

    @graph
    def add(x: FieldArray) -> FieldArray:
        return x + captured

    good, bad = put_on_device(gpu, [1, 2]), 6 / put_on_device(gpu, [2, 0])
    first, second, third = add(bad), add(good), add(bad + 1)
    assert second.tolist() == [5, 7]
    for each in (first, third, first * 2):
        with pytest.raises(ZeroDivisionError, match="element 1"):
            each.tolist()
    captured[...] = outer
    with pytest.raises(ZeroDivisionError, match="element 0"):
        add(good).tolist()
    captured[...] = good
    assert add(good).tolist() == [2, 4]


@pytest.mark.parametrize("adds", [False, True])
def test_the_errors_of_arrays_that_a_graph_changes(
    gpu: gx.PersistentVulkanBackend, adds: bool
) -> None:
    good, bad = put_on_device(gpu, [1, 2]), 6 / put_on_device(gpu, [2, 0])
    changed, x = put_on_device(gpu, [0, 0]), put_on_device(gpu, [0, 0])
    with graph(x) as run:
        changed[...] = changed + x if adds else x
    run(good)
    assert changed.tolist() == [1, 2]
    run(bad)
    run(good)
    if not adds:
        assert changed.tolist() == [1, 2]
    # The sum includes the bad array; otherwise that alone has the error.
    with pytest.raises(ZeroDivisionError, match="element 1"):
        (changed if adds else bad).tolist()


def test_an_array_keeps_its_error_where_a_graph_does_not_write(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    bad = 6 / put_on_device(gpu, [2, 0, 1])
    x = put_on_device(gpu, [1])
    with graph(x) as run:
        bad[:1] = x
    for _ in range(2):
        run()
        with pytest.raises(ZeroDivisionError, match="element 1"):
            bad.tolist()


def test_a_recorded_sum_of_points_forgets_errors(gpu: gx.PersistentVulkanBackend) -> None:
    """A multi-scalar multiplication records its steps by itself, on arrays that it keeps."""
    curve = SMALL[0]
    points = gpu.to_device(curve.generator * [1, 2, 3])
    scalars = curve.scalar_field
    for _ in range(3):
        bad = gpu.to_device(scalars.encode([6, 1, 1])) / gpu.to_device(scalars.encode([2, 0, 1]))
        with pytest.raises(ZeroDivisionError, match="element 1"):
            curve.msm(points, bad).tolist()
        found = curve.msm(points, gpu.to_device(scalars.encode([1, 1, 1])))
        assert found.tolist() == (curve.generator * 6).tolist()
