"""One suite for the backends with device arrays: calls on them have the same results and the same
rules everywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from tests.conformance.conftest import SWIFTSHADER, list_able, open_under_test, without_swiftshader
from tests.support.contract_kernels import expect_scaled, expect_step, scale, step
from tests.support.jobs import ADD_U32, FQ_ADD, TOO_LARGE, field_job

Array = npt.NDArray[Any]
SCALE, STEP = scale(), step()
PRODUCT = gx.kernels.load("matmul_u32")
FIELD = gx.fields.BLS12_381_FR
SMALL_FIELD = gx.fields.BABYBEAR  # its pipelines compile quickly


@pytest.fixture(scope="module", params=[*list_able("to_device"), SWIFTSHADER])
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened


def words(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).integers(0, 1 << 32, shape, np.uint32)


X, Y = words(1000), words(1000, seed=2)
VIEWS = [slice(1, None), slice(None, None, 2), slice(None, None, -1), slice(3, 900, 13)]


# --- where results go ---


def test_device_arrays_in_device_arrays_out(backend: Backend) -> None:
    there = backend.to_device(X)
    mixed = backend.run(ADD_U32, there, Y)
    assert isinstance(mixed, gx.DeviceArray)
    np.testing.assert_array_equal(mixed.numpy(), X + Y)
    np.testing.assert_array_equal(backend.run(ADD_U32, mixed, there).numpy(), 2 * X + Y)
    assert isinstance(backend.run(ADD_U32, X, Y), np.ndarray)


def test_keep_false_and_a_numpy_out_fetch(backend: Backend) -> None:
    there = backend.to_device(X)
    fetched = backend.run(ADD_U32, there, Y, keep=False)
    assert isinstance(fetched, np.ndarray)
    np.testing.assert_array_equal(fetched, X + Y)
    out = np.zeros_like(X)
    assert backend.run(ADD_U32, there, Y, out=out) is out
    np.testing.assert_array_equal(out, X + Y)


def test_numpy_arrays_are_copied_before_the_call_returns(backend: Backend) -> None:
    there, y = backend.to_device(X), Y.copy()
    result = backend.run(ADD_U32, there, y)
    y[...] = 0
    np.testing.assert_array_equal(result.numpy(), X + Y)


@pytest.mark.parametrize("keep", [True, False])
def test_keep_must_agree_with_out(backend: Backend, keep: bool) -> None:
    there = backend.to_device(X)
    out = X.copy() if keep else there
    with pytest.raises(ArgumentTypeError, match=f"keep={keep} and out= contradict each other"):
        backend.run(ADD_U32, there, Y, out=out, keep=keep)


# --- views and out= ---


@pytest.mark.parametrize("view", VIEWS, ids=repr)
def test_inputs_and_outputs_may_be_any_views(backend: Backend, view: slice) -> None:
    a, b, out = (backend.to_device(each) for each in (X, Y, np.zeros_like(X)))
    result = backend.run(ADD_U32, a[view], b[view], out=out[view])
    expected = np.zeros_like(X)
    expected[view] = X[view] + Y[view]
    np.testing.assert_array_equal(result.numpy(), expected[view])
    np.testing.assert_array_equal(out.numpy(), expected)
    backend.run(ADD_U32, a[view], b[view], out=a[view])
    expected = X.copy()
    expected[view] += Y[view]
    np.testing.assert_array_equal(a.numpy(), expected)


@without_swiftshader("to_device")
def test_arrays_of_several_axes_and_transposed_arrays(backend: Backend) -> None:
    a, b = words(30, 40), words(40, 30, seed=2)
    there, other = backend.to_device(a), backend.to_device(b)
    np.testing.assert_array_equal(backend.run(ADD_U32, there, other.T).numpy(), a + b.T)
    np.testing.assert_array_equal(backend.run(PRODUCT, there, other).numpy(), a @ b)
    np.testing.assert_array_equal(backend.run(PRODUCT, other.T, there.T).numpy(), b.T @ a.T)
    out = backend.to_device(np.zeros((40, 30), np.uint32))
    backend.run(ADD_U32, there, other.T, out=out.T)
    np.testing.assert_array_equal(out.numpy(), (a + b.T).T)


def test_an_in_out_argument_changes_only_as_out(backend: Backend) -> None:
    x, c = backend.to_device(X), backend.to_device(Y)
    result = backend.run(STEP, x, c)
    np.testing.assert_array_equal(result.numpy(), expect_step(X, Y))
    np.testing.assert_array_equal(x.numpy(), X)
    assert backend.run(STEP, x, c, out=x) is x
    np.testing.assert_array_equal(x.numpy(), expect_step(X, Y))


@without_swiftshader("to_device")
def test_a_kernel_that_reads_in_any_order_may_write_over_its_input(backend: Backend) -> None:
    a, b = words(130, 130), words(130, 130, seed=2)
    x, y = backend.to_device(a), backend.to_device(b)
    assert backend.run(PRODUCT, x, y, out=x) is x
    np.testing.assert_array_equal(x.numpy(), a @ b)
    backend.run(PRODUCT, y.T, y.T, out=y.T)
    np.testing.assert_array_equal(y.numpy(), (b.T @ b.T).T)


def test_an_initial_value_does_not_overwrite_an_input(backend: Backend) -> None:
    """Without `init=None` an output is set to zeros before the kernel runs."""
    reverse = gx.Kernel.from_glsl(
        """
        #version 450
        layout(local_size_x = 64) in;
        layout(binding = 0) writeonly buffer Y { uint y[]; };
        layout(binding = 1) readonly buffer X { uint x[]; };
        void main() {
            uint i = gl_GlobalInvocationID.x;
            if (i < x.length()) y[i] = x[x.length() - 1 - i];
        }
        """,
        wgsl="""
        @group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @group(0) @binding(1) var<storage, read> x: array<u32>;
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if (id.x < arrayLength(&x)) { y[id.x] = x[arrayLength(&x) - 1u - id.x]; }
        }
        """,
        reference=lambda x: x[::-1],
    )
    there = backend.to_device(X)
    backend.run(reverse, there, out=there)
    backend.run(reverse, there[:10], out=there[:10])
    expected = X[::-1].copy()
    expected[:10] = expected[9::-1]
    np.testing.assert_array_equal(there.numpy(), expected)


def test_overlapping_outputs_are_refused(backend: Backend) -> None:
    a, b = backend.to_device(X), backend.to_device(Y)
    with pytest.raises(ArgumentShapeError, match="out 0 overlaps argument 0"):
        backend.run(ADD_U32, a[1:], b[1:], out=a[:-1])
    with pytest.raises(ArgumentShapeError, match="not its own in-out argument"):
        backend.run(STEP, a, b, out=b)
    with pytest.raises(ArgumentShapeError, match="elements of out 0 share memory"):
        backend.run(ADD_U32, a, b, out=a[:1].broadcast_to((1000,)))
    np.testing.assert_array_equal(a.numpy(), X)
    np.testing.assert_array_equal(b.numpy(), Y)


def test_an_out_of_another_shape_or_dtype_is_refused(backend: Backend) -> None:
    a = backend.to_device(X)
    with pytest.raises(ArgumentShapeError, match=r"out 0 has shape \(999,\)"):
        backend.run(ADD_U32, a, a, out=backend.to_device(X[1:]))
    with pytest.raises(ArgumentTypeError, match="out 0 has dtype float32"):
        backend.run(ADD_U32, a, a, out=backend.to_device(X.astype(np.float32)))


# --- batches and streams ---


@pytest.mark.parametrize("method", ["run_batch", "stream"])
def test_each_job_follows_the_rule_by_itself(backend: Backend, method: str) -> None:
    run: Callable[..., Any] = getattr(backend, method)
    there, target = backend.to_device(X), np.zeros_like(X)
    jobs = [(X, Y), (there, Y), (there, there), (there, X)]
    results = list(run(ADD_U32, jobs, out=[None, None, None, target]))
    kinds = [isinstance(each, gx.DeviceArray) for each in results]
    assert kinds == [False, True, True, False]
    assert results[3] is target
    for result, expected in zip(results, [X + Y, X + Y, 2 * X, 2 * X], strict=True):
        np.testing.assert_array_equal(np.asarray(result), expected)
    scaled = run(SCALE, [(there,)] * 3, params=[(n, 1) for n in range(3)])
    for n, result in enumerate(scaled):
        np.testing.assert_array_equal(result.numpy(), expect_scaled(X, n, 1))


# --- errors ---


def test_an_element_out_of_range_is_an_error_at_the_fetch_at_the_latest(backend: Backend) -> None:
    a, b = field_job(9)
    b[4] = TOO_LARGE
    with pytest.raises(gx.ElementRangeError) as caught:
        backend.run(FQ_ADD, backend.to_device(a), backend.to_device(b)).numpy()
    assert (caught.value.argument, caught.value.index) == (1, 4)
    with contextlib.suppress(gx.ElementRangeError):
        backend.synchronize()
    b[4] = 0
    result = backend.run(FQ_ADD, backend.to_device(a), backend.to_device(b)).numpy()
    np.testing.assert_array_equal(result[4], a[4])


def test_an_array_of_another_backend_is_refused_and_can_be_copied(backend: Backend) -> None:
    with open_under_test(backend.name) as another, gx.CpuBackend() as cpu:
        for owner in (another, cpu):
            array = owner.to_device(X)
            with pytest.raises(
                ArgumentTypeError, match=r"(the array|argument 0).*another.* backend"
            ):
                backend.run(ADD_U32, array, X).numpy()
            copy = array.copy_to(backend)
            np.testing.assert_array_equal(backend.run(ADD_U32, copy, X).numpy(), 2 * X)
    own = backend.to_device(X)
    assert backend.to_device(own) is own


# --- fields ---


def test_field_operations_and_calls_run_in_program_order(backend: Backend) -> None:
    values = [3, 5, 7, 1 << 200]
    x = backend.to_device(FIELD.encode(values))
    y = x * x
    backend.run(gx.kernels.load("bls12_381_fr_add"), y.data, x.data, out=y.data)
    z = y + 1
    backend.synchronize()
    assert z.ints().tolist() == [(v * v + v + 1) % FIELD.modulus for v in values]


@without_swiftshader("to_device")
def test_a_field_array_on_the_device_has_every_kind_of_operation(backend: Backend) -> None:
    p, values = SMALL_FIELD.modulus, [0, 1, 5, 1 << 30, 7, 8, 9, 10]
    x = backend.to_device(SMALL_FIELD.encode(values))
    assert x.on_device
    assert SMALL_FIELD.intt(SMALL_FIELD.ntt(x)).ints().tolist() == values
    assert SMALL_FIELD.sum(x).ints().tolist() == sum(values) % p
    assert (x**5).ints().tolist() == [pow(v, 5, p) for v in values]
    assert SMALL_FIELD.inverse(x).ints().tolist() == [pow(v, -1, p) if v else 0 for v in values]
    assert SMALL_FIELD.poly_mul(x[:2], x[2:4]).ints().tolist() == [0, 5, (1 << 30)]
    assert x.in_form("canonical").ints().tolist() == values
    assert all(
        each.on_device
        for each in (SMALL_FIELD.ntt(x), x[2:], x.reshape(2, 4), SMALL_FIELD.sum(x), -x, x * 3)
    )


def test_device_arrays_are_counted_as_memory_in_use(backend: Backend) -> None:
    backend.synchronize()  # what earlier operations used is free then
    before = backend.stats().memory_use.in_use["device arrays"]
    array = backend.to_device(np.zeros(1 << 16, np.uint32))
    assert backend.stats().memory_use.in_use["device arrays"] >= before + (1 << 18)
    del array
    backend.synchronize()
    assert backend.stats().memory_use.in_use["device arrays"] <= before


# --- words of elements ---


def test_words_on_a_device_become_elements(backend: Backend) -> None:
    numbers = np.array([[0, 1, 2], [3, 4, SMALL_FIELD.modulus - 1]], np.uint32)
    there = backend.to_device(numbers)
    elements = SMALL_FIELD.from_words(there[:, ::2], "canonical")
    there[...] = 7
    assert elements.on_device
    assert elements.tolist() == numbers[:, ::2].tolist()
    powers = SMALL_FIELD.from_words(backend.to_device(numbers), "montgomery") * (1 << 32)
    assert powers.tolist() == numbers.tolist()
    numbers[1] = SMALL_FIELD.modulus
    with pytest.raises(ElementRangeError, match="element 3 of argument 0"):
        SMALL_FIELD.from_words(backend.to_device(numbers), "canonical")
    with pytest.raises(ArgumentTypeError, match="expected elements of uint32, found float32"):
        SMALL_FIELD.from_words(backend.to_device(numbers.astype("f4")), "canonical")
    with pytest.raises(ArgumentShapeError, match="the last axis holds the 4 columns"):
        FIELD.from_words(backend.to_device(np.zeros((1, 3), np.uint64)), "canonical")
