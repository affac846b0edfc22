"""Arrays of every memory layout, with both device queues and both kinds of memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.kernel import Kernel
from gpu_executor.primes import words
from gpu_executor.webgpu import device as device_module
from gpu_executor.webgpu.native_queue import NativeQueue
from tests.support.jobs import ADD_U32, FQ, FQ_ADD, Array, Job, check_sums, field_job, word_jobs
from tests.support.pairwise import choose_pairwise

Layout = Callable[[Array], Array]

SIZES = (1, 3, 5, 16_385, 33_000)
CONFIGURATIONS = {
    "native queue, shared memory": (True, True),
    "native queue, device memory": (True, False),
    "public queue, shared memory": (False, True),
    "public queue, device memory": (False, False),
}
KERNELS = {"words": ADD_U32, "field": FQ_ADD}
on_both_kernels = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@pytest.fixture(scope="module", params=list(CONFIGURATIONS.values()), ids=list(CONFIGURATIONS))
def executor(request: pytest.FixtureRequest) -> Iterator[gx.WgpuExecutor]:
    """An executor for each device queue and each kind of memory."""
    private, shares = request.param
    with pytest.MonkeyPatch.context() as patch:
        if not shares:
            patch.setattr(device_module, "SHARING_KINDS", ())
        opened = gx.WgpuExecutor(private=private, settings=gx.Settings())
    with opened:
        assert isinstance(opened._queue, NativeQueue) == private
        assert shares or not opened._device.shares_memory
        yield opened


@functools.cache
def make_job(kernel: Kernel, size: int) -> Job:
    return field_job(size, size) if kernel is FQ_ADD else word_jobs(size)[0]


def add_on_host(a: Array, b: Array) -> Array:
    x, y = (np.array(each, each.dtype.newbyteorder("=")) for each in (a, b))
    sums: Array = x + y if x.dtype == np.uint32 else words.add(FQ, x, y)
    return sums


def every_third(a: Array) -> Array:
    wide = np.full((3 * len(a), *a.shape[1:]), 9, a.dtype)
    wide[1::3] = a
    return wide[1::3]


def inner_slice(a: Array) -> Array:
    wide = np.full((len(a) + 3, *a.shape[1:]), 9, a.dtype)
    wide[1:-2] = a
    return wide[1:-2]


def inner_columns(a: Array) -> Array:
    wide = np.full((len(a), *(extent + 3 for extent in a.shape[1:])), 9, a.dtype)
    inner = (slice(None), *[slice(1, -2)] * (a.ndim - 1))
    wide[inner] = a
    return wide[inner]


def read_only(a: Array) -> Array:
    copy = a.copy()
    copy.flags.writeable = False
    return copy


def unaligned(a: Array) -> Array:
    copy: Array = np.ndarray(a.shape, a.dtype, bytearray(a.nbytes + 1), offset=1)
    copy[...] = a
    return copy


WRITABLE: dict[str, Layout] = {
    "every third": every_third,
    "an inner slice": inner_slice,
    "inner columns": inner_columns,
    "reversed": lambda a: a[::-1].copy()[::-1],
    "transposed": lambda a: a.T.copy().T,
    "unaligned": unaligned,
}
LAYOUTS: dict[str, Layout] = {
    **WRITABLE,
    "read-only": read_only,
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "every third, big-endian": lambda a: every_third(a.astype(a.dtype.newbyteorder(">"))),
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "a subclass": lambda a: a.copy().view(np.recarray),
}


def pairwise(layouts: Mapping[str, Layout]) -> pytest.MarkDecorator:
    """Every pair of a configuration, a layout and a kernel."""
    chosen = choose_pairwise(CONFIGURATIONS, layouts, KERNELS)
    return pytest.mark.parametrize(
        ("executor", "layout", "kernel"),
        [
            (CONFIGURATIONS[configuration], layouts[layout], KERNELS[kernel])
            for configuration, layout, kernel in chosen
        ],
        ids=[" - ".join(each) for each in chosen],
        indirect=["executor"],
    )


@pairwise(LAYOUTS)
def test_inputs_may_have_any_memory_layout(
    executor: gx.WgpuExecutor, kernel: Kernel, layout: Layout
) -> None:
    jobs = [make_job(kernel, size) for size in SIZES]
    laid = [(layout(a), b) if index % 2 else (a, layout(b)) for index, (a, b) in enumerate(jobs)]
    before = [tuple(each.copy() for each in job) for job in laid]
    expected = [add_on_host(*job) for job in laid]
    results = executor.run_batch(kernel, laid)
    results += [executor.run(kernel, *(layout(each) for each in job)) for job in jobs[:-1]]
    expected += [add_on_host(*(layout(each) for each in job)) for job in jobs[:-1]]
    for result, right in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, right)
        assert result.dtype == right.dtype
        assert result.flags.c_contiguous and result.flags.writeable
    for job, copies in zip(laid, before, strict=True):
        for each, copy in zip(job, copies, strict=True):
            np.testing.assert_array_equal(each, copy)


@pairwise(WRITABLE)
def test_out_may_have_any_memory_layout_and_nothing_else_is_written(
    executor: gx.WgpuExecutor, kernel: Kernel, layout: Layout
) -> None:
    jobs = [make_job(kernel, size) for size in SIZES]
    targets = [layout(np.zeros_like(a)) for a, _ in jobs]
    around = [sum_surroundings(target) for target in targets]
    results = executor.run_batch(kernel, jobs, out=targets)
    assert all(result is target for result, target in zip(results, targets, strict=True))
    check_sums(targets, jobs)
    for target, (a, b) in zip(targets, jobs, strict=True):
        target[...] = a
        assert executor.run(kernel, target, b, out=target) is target
    check_sums(targets, jobs)
    assert [sum_surroundings(target) for target in targets] == around


def sum_surroundings(array: Array) -> tuple[int, int]:
    """Return how many elements surround an array in its base array, and their sum."""
    base: Any = array.base
    if not isinstance(base, np.ndarray) or base.size == array.size:
        return 0, 0
    outside = base.copy()
    inside: Array = np.ndarray(
        array.shape, array.dtype, outside, address(array) - address(base), array.strides
    )
    inside[...] = 0
    return base.size - array.size, int(outside.sum())


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


@on_both_kernels
def test_out_of_foreign_byte_order_is_refused(executor: gx.WgpuExecutor, kernel: Kernel) -> None:
    a, b = make_job(kernel, 5)
    swapped = np.zeros(a.shape, a.dtype.newbyteorder(">"))
    for run in (
        lambda: executor.run(kernel, a, b, out=swapped),
        lambda: executor.run_batch(kernel, [(a, b)], out=[swapped]),
    ):
        with pytest.raises(
            gx.errors.ArgumentTypeError, match=rf"out 0 has dtype >u\d; .* {a.dtype}"
        ):
            run()
    assert not swapped.any()
