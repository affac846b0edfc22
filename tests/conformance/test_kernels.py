"""One suite for every backend: the kernels that all backends have, against exact references."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.kernels.catalogue import split_field_name
from gpu_executor.primes import NAMED, words
from tests.conformance.conftest import limit_cases
from tests.conftest import elements

Array = npt.NDArray[Any]
# One field for each number of words with kernels of its own: 12, 8, 2, 1.
FIELDS = ("bls12_381_fq", "bls12_381_fr", "goldilocks", "babybear")
ELEMENTWISE = [name for name in gx.kernels.names() if name.startswith(("vector", *FIELDS))]
REDUCTIONS = [name for name in gx.kernels.names() if name.startswith("reduce")]
PRODUCTS = [name for name in gx.kernels.names() if name.startswith("matmul")]


def make_inputs(kernel: gx.Kernel, count: int, seed: int = 1) -> list[Array]:
    """Arrays that an elementwise kernel accepts."""
    draw = np.random.default_rng(seed)
    if found := split_field_name(kernel.name):
        prime = NAMED[found[0]]
        return [words.from_ints(prime, elements(prime, count, seed + n)) for n in range(2)]
    if kernel.name.endswith("f32"):
        return [draw.standard_normal(count).astype(np.float32) for _ in range(2)]
    return [draw.integers(0, 1 << 32, count, np.uint32) for _ in range(2)]


def compute_reference(kernel: gx.Kernel, *arrays: Array) -> Array:
    assert kernel.reference is not None
    with np.errstate(all="ignore"):
        result: Array = kernel.reference(*arrays)
    return result


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elements(backend: Backend, name: str) -> None:
    kernel = gx.kernels.load(name)
    for count in limit_cases(backend, [0, 1, 63, 64, 1000, 65]):
        arrays = make_inputs(kernel, count)
        expected = compute_reference(kernel, *arrays)
        for _ in limit_cases(
            backend, range(3)
        ):  # the first call, the second, and one from the caches
            np.testing.assert_array_equal(backend.run(kernel, *arrays), expected)


@pytest.mark.parametrize("name", ["vector_add_u32", "bls12_381_fr_mont_mul"])
def test_arrays_of_any_memory_layout(backend: Backend, name: str) -> None:
    kernel = gx.kernels.load(name)
    a, b = make_inputs(kernel, 120)
    expected = compute_reference(kernel, a, b)
    np.testing.assert_array_equal(backend.run(kernel, a[::-3], b[::-3]), expected[::-3])
    big = a.astype(a.dtype.newbyteorder(">"))
    np.testing.assert_array_equal(backend.run(kernel, big, np.asfortranarray(b)), expected)
    shape = (4, 5, 6, *a.shape[1:])
    result = backend.run(kernel, a.reshape(shape), b.reshape(shape))
    np.testing.assert_array_equal(result, expected.reshape(shape))
    a.flags.writeable = False
    target = np.zeros_like(expected)
    assert backend.run(kernel, a, b, out=target) is target
    np.testing.assert_array_equal(target, expected)


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if name.startswith("bls")])
def test_an_element_that_is_not_below_the_modulus_is_named(backend: Backend, name: str) -> None:
    kernel = gx.kernels.load(name)
    good = make_inputs(kernel, 300)
    expected = compute_reference(kernel, *good)
    for argument, index in limit_cases(backend, [(0, 0), (1, 299), (1, 17)]):
        arrays = [array.copy() for array in good]
        arrays[argument][index] = np.iinfo(arrays[argument].dtype).max
        with pytest.raises(gx.ElementRangeError) as caught:
            backend.run(kernel, *arrays)
        assert (caught.value.argument, caught.value.index) == (argument, index)
        np.testing.assert_array_equal(backend.run(kernel, *good), expected)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(backend: Backend, name: str) -> None:
    kernel = gx.kernels.load(name)
    operation = {"sum": np.add, "min": np.minimum, "max": np.maximum}[name.split("_")[1]]
    for count in limit_cases(backend, [1, 2, 4095, 4096, 50_000, 4097]):
        x = np.random.default_rng(count).integers(0, 1 << 32, count, np.uint32)
        if "f32" in name:
            x = ((x.astype(np.float64) / 2**31 - 1) * 1e6).astype(np.float32)
        expected = compute_reference(kernel, x)
        result = backend.run(kernel, x)
        np.testing.assert_array_equal(result, expected)
        assert result.shape == expected.shape
        step = 4096 if name.endswith("by_block") else count
        by_numpy = [operation.reduce(x[i : i + step], dtype=x.dtype) for i in range(0, count, step)]
        np.testing.assert_allclose(expected.reshape(-1), by_numpy, rtol=1e-4, atol=1e2)


@pytest.mark.parametrize("name", ["reduce_min_f32", "reduce_max_f32", "reduce_sum_f32"])
def test_reductions_of_nan_and_infinity(backend: Backend, name: str) -> None:
    x = np.ones(5000, np.float32)
    x[[3, 4500]] = np.nan, np.inf
    assert np.isnan(backend.run(gx.kernels.load(name), x))
    blocks = backend.run(gx.kernels.load(f"{name}_by_block"), x)
    assert np.isnan(blocks[0])
    assert blocks[1] == (1 if "min" in name else np.inf)


@pytest.mark.parametrize("name", PRODUCTS)
def test_matrix_products(backend: Backend, name: str) -> None:
    kernel = gx.kernels.load(name)
    assert kernel.types is not None
    sizes = [
        (1, 1, 1),
        (16, 16, 16),
        (3, 100, 2),
        (40, 1, 50),
        (1, 70, 900),
        (900, 70, 1),
        (17, 5, 33),
    ]
    for m, k, n in limit_cases(backend, sizes):
        draw = np.random.default_rng(m)
        a = draw.integers(0, 1 << 32, (m, k), np.uint32)
        b = draw.integers(0, 1 << 32, (k, n), np.uint32)
        if kernel.types[0].dtype == np.float32:
            a, b = (a / 2**32).astype(np.float32), (b / 2**32).astype(np.float32)
            exact = a.astype(np.float64) @ b.astype(np.float64)
            np.testing.assert_allclose(backend.run(kernel, a, b), exact, rtol=1e-5)
        else:
            np.testing.assert_array_equal(backend.run(kernel, a, b), a @ b)


@pytest.mark.parametrize("name", PRODUCTS)
def test_matrices_of_mismatched_shapes_are_refused(backend: Backend, name: str) -> None:
    kernel = gx.kernels.load(name)
    assert kernel.types is not None
    a = np.ones((3, 4), kernel.types[0].dtype)
    for b in (np.ones((3, 4), a.dtype), np.ones(4, a.dtype)):
        with pytest.raises(gx.errors.ArgumentShapeError, match=r"shapes \(m, k\) and \(k, n\)"):
            backend.run(kernel, a, b)


def test_every_backend_refuses_the_same_arguments(backend: Backend) -> None:
    kernel = gx.kernels.load("vector_add_u32")
    a = np.ones(5, np.uint32)
    with pytest.raises(gx.errors.ArgumentTypeError, match="takes 2 arrays and got 1"):
        backend.run(kernel, a)
    with pytest.raises(gx.errors.ArgumentTypeError, match="argument 1 has dtype float32"):
        backend.run(kernel, a, a.astype(np.float32))
    with pytest.raises(gx.errors.ArgumentShapeError, match="argument 1 has elements in shape"):
        backend.run(kernel, a, a[1:])


def test_an_out_that_two_jobs_of_a_batch_use_is_refused(backend: Backend) -> None:
    kernel = gx.kernels.load("vector_add_u32")
    jobs = [tuple(make_inputs(kernel, 50, seed)) for seed in range(3)]
    outs = [np.zeros(50, np.uint32) for _ in jobs]
    for wrong, message in (
        ([outs[0], outs[1], outs[0]], "job 2: out 0 overlaps out 0 of job 0"),
        ([outs[0], jobs[2][1], outs[2]], "job 2: argument 1 overlaps out 0 of job 1"),
    ):
        with pytest.raises(gx.errors.ArgumentShapeError, match=message):
            backend.run_batch(kernel, jobs, out=wrong)
    assert not np.any(outs)
    rows = np.zeros((3, 50), np.uint32)
    backend.run_batch(kernel, jobs, out=list(rows))
    np.testing.assert_array_equal(rows, [compute_reference(kernel, *job) for job in jobs])


def test_an_out_that_cannot_hold_every_element_is_refused(backend: Backend) -> None:
    kernel = gx.kernels.load("vector_add_u32")
    a, b = make_inputs(kernel, 50)
    one = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint32), (50,), (0,))
    with pytest.raises(gx.errors.ArgumentShapeError, match="elements of out 0 share memory"):
        backend.run(kernel, a, b, out=one)
    masked = np.ma.MaskedArray(np.zeros(50, np.uint32), mask=True)
    with pytest.raises(gx.errors.ArgumentTypeError, match="out 0 is a masked array"):
        backend.run(kernel, a, b, out=masked)
    spread = np.zeros((50, 3), np.uint32)[:, 1]
    np.testing.assert_array_equal(
        backend.run(kernel, a, b, out=spread), compute_reference(kernel, a, b)
    )
