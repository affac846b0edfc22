"""One suite for the graphs of all backends that have device arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from tests.conformance.conftest import SWIFTSHADER, list_able, open_under_test, without_swiftshader
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, check_sums, field_job

Array = npt.NDArray[Any]
FIELD = gx.fields.BLS12_381_FR
SMALL_FIELD = gx.fields.BABYBEAR  # its pipelines compile quickly


@pytest.fixture(scope="module", params=[*list_able("graph"), SWIFTSHADER])
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened


def words(seed: int = 1, count: int = 200) -> Array:
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


A, B = words(1), words(2)


def test_operations_are_recorded_and_run_when_the_graph_is_called(backend: Backend) -> None:
    x = backend.to_device(A)
    with backend.graph(x) as run:
        y = backend.run(ADD_U32, x, B)
        backend.run(ADD_U32, y, y, out=x)
    np.testing.assert_array_equal(x.numpy(), A)
    run()
    np.testing.assert_array_equal(x.numpy(), 2 * (A + B))
    run()
    np.testing.assert_array_equal(x.numpy(), 2 * (2 * (A + B) + B))
    run(A)
    np.testing.assert_array_equal(y.numpy(), A + B)


@without_swiftshader("graph")
def test_field_operations_of_every_kind_are_recorded(backend: Backend) -> None:
    p = SMALL_FIELD.modulus
    x = backend.to_device(SMALL_FIELD.encode(range(8)))
    with backend.graph(x) as run:
        y = SMALL_FIELD.intt(SMALL_FIELD.ntt(x) * 3) + x
        results = (
            y,
            SMALL_FIELD.sum(y),
            y**3,
            SMALL_FIELD.inverse(y),
            SMALL_FIELD.poly_mul(y, x),
            y[2:5] + 1,
        )
    for factor in (1, 5):
        values = [factor * (i + 1) for i in range(8)]
        run(SMALL_FIELD.encode(values))
        expected = [4 * value % p for value in values]
        found = [each.ints().tolist() for each in results]
        assert found[0] == expected
        assert found[1] == sum(expected) % p
        assert found[2] == [pow(value, 3, p) for value in expected]
        assert found[3] == [pow(value, -1, p) for value in expected]
        assert found[4][14] == expected[7] * values[7] % p
        assert found[5] == [value + 1 for value in expected[2:5]]


def test_arguments_are_converted_or_refused(backend: Backend) -> None:
    x = backend.to_device(FIELD.encode([1, 2, 3]))
    with backend.graph(x) as run:
        y = x * 3
    run(FIELD.encode([4, 5, 6]))  # canonical words on the host
    assert y.ints().tolist() == [12, 15, 18]
    run(backend.to_device(FIELD.encode([7, 8, 9])).in_form("canonical"))
    assert y.ints().tolist() == [21, 24, 27]
    with pytest.raises(ArgumentTypeError, match="bn254_fr"):
        run(backend.to_device(gx.fields.BN254_FR.encode([1, 2, 3])))
    with pytest.raises(ArgumentShapeError, match="shape"):
        run(FIELD.encode([5]))
    assert y.ints().tolist() == [21, 24, 27]


def test_the_inputs_themselves_may_be_passed_in_any_order(backend: Backend) -> None:
    x, y = backend.to_device(A), backend.to_device(B)
    with backend.graph(x, y) as run:
        z = backend.run(ADD_U32, backend.run(ADD_U32, x, x), y)
    run(x, y)
    np.testing.assert_array_equal(z.numpy(), 2 * A + B)
    run(y, x)
    np.testing.assert_array_equal(z.numpy(), 2 * B + A)


def test_numpy_arrays_keep_the_value_that_they_had_when_recorded(backend: Backend) -> None:
    x, other = backend.to_device(A), B.copy()
    with backend.graph(x) as run:
        y = backend.run(ADD_U32, x, other)
        constant = backend.to_device(other)
    other[...] = 0
    run()
    np.testing.assert_array_equal(y.numpy(), A + B)
    np.testing.assert_array_equal(constant.numpy(), B)


def test_copies_and_assignments_are_recorded(backend: Backend) -> None:
    x, target = backend.to_device(A), backend.to_device(np.zeros_like(A))
    with backend.graph(x) as run:
        copy = x[::-1].copy()
        target[:100] = x[100:]
    with pytest.raises(gx.GpuError, match="has not run yet"):
        copy.numpy()
    np.testing.assert_array_equal(target.numpy(), np.zeros_like(A))
    run(B)
    np.testing.assert_array_equal(copy.numpy(), B[::-1])
    np.testing.assert_array_equal(target.numpy(), [*B[100:], *[0] * 100])


def test_a_result_cannot_be_used_before_the_graph_has_run(backend: Backend) -> None:
    x, f = backend.to_device(A), backend.to_device(FIELD.encode([1, 2]))
    with backend.graph(x, f) as run:
        y, g = backend.run(ADD_U32, x, x), f * 2
    uses: list[Callable[[], Any]] = [
        y.numpy,
        y[::2].numpy,
        y.copy,
        lambda: backend.run(ADD_U32, y, x),
        lambda: g + 1,
        g.ints,
    ]
    for use in uses:
        with pytest.raises(gx.GpuError, match="has not run yet"):
            use()
    run()
    np.testing.assert_array_equal(y.numpy(), 2 * A)
    assert (g + 1).ints().tolist() == [3, 5]


def test_nothing_can_be_fetched_while_a_graph_is_recorded(backend: Backend) -> None:
    x = backend.to_device(A)
    uses: list[Callable[[], Any]] = [
        x.numpy,
        lambda: backend.run(ADD_U32, x, x, keep=False),
        lambda: backend.run(ADD_U32, x, x, out=np.empty_like(A)),
    ]
    for use in uses:
        with pytest.raises(gx.GpuError, match="a graph is being recorded"), backend.graph(x):
            use()
    np.testing.assert_array_equal(x.numpy(), A)


def test_an_element_out_of_range_is_an_error_of_its_replay(backend: Backend) -> None:
    a, b = field_job(20)
    bad = a.copy()
    bad[7] = TOO_LARGE
    x = backend.to_device(a)
    with backend.graph(x) as run:
        z = backend.run(FQ_ADD, x, b)
    run()
    check_sums([z.numpy()], [(a, b)])
    with pytest.raises(gx.ElementRangeError, match="element 7 of argument 0"):
        run(bad)
        backend.synchronize()


def test_other_threads_are_not_recorded(backend: Backend) -> None:
    x, found = backend.to_device(A), list[Array]()

    def compute() -> None:
        found.append(backend.run(ADD_U32, x, B).numpy())

    with backend.graph(x) as run:
        backend.run(ADD_U32, x, x)
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    np.testing.assert_array_equal(found[0], A + B)
    run()


def test_a_graph_is_recorded_once_and_not_inside_another(backend: Backend) -> None:
    x = backend.to_device(A)
    run = backend.graph(x)
    with pytest.raises(gx.GpuError, match="not recorded yet"):
        run()
    with pytest.raises(gx.GpuError, match="graph"), run, backend.graph(x):
        pass
    with run:
        y = backend.run(ADD_U32, x, x)
    with pytest.raises(gx.GpuError, match="recorded already"):
        run.__enter__()
    run()
    np.testing.assert_array_equal(y.numpy(), 2 * A)


@without_swiftshader("graph")
def test_a_decorated_function_finds_its_device(backend: Backend) -> None:
    calls = []

    @gx.graph
    def triple(x: Any, offset: int = 1) -> Any:
        calls.append(offset)
        return FIELD.intt(FIELD.ntt(x) * 3) + offset

    for start in range(3):
        values = [start + i for i in range(8)]
        x = backend.to_device(FIELD.encode(values))
        assert triple(x).ints().tolist() == [3 * value + 1 for value in values]
        assert triple(x, offset=2).ints().tolist() == [3 * value + 2 for value in values]
    assert calls == [1, 2]
