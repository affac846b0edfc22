"""Errors of an executor: each belongs to one job, and keeps no arrays alive."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import pytest

import gpu_executor as gx
from gpu_executor.executor.jobs import copy_exception
from tests.support.executors import ADD, FQ_ADD, words
from tests.support.fault_codes import (
    COUNT,
    JOBS,
    LOST,
    code_of,
    executor,
    for_every_code,
    run_as_batch,
)
from tests.support.jobs import TOO_LARGE, check_sums, field_jobs
from tests.support.threads import PATIENCE
from tests.support.vulkan_faults import Fail, fail

__all__ = ["executor", "fail"]  # the fixtures

FEW = 9


@for_every_code
def test_an_error_reaches_only_the_future_of_its_job(
    executor: gx.GpuExecutor, fail: Fail, code: str
) -> None:
    jobs = field_jobs(*[20] * 60)
    for bad in (0, 31, 59):
        jobs[bad][1][3] = TOO_LARGE
    right = [job for at, job in enumerate(jobs) if at not in (0, 31, 59)]
    fail("vkQueueSubmit", code_of(code), on=2)
    futures = [executor.submit(FQ_ADD, *job) for job in jobs]
    for bad in (59, 31, 0):
        with pytest.raises(gx.ElementRangeError, match="element 3 of argument 1"):
            futures.pop(bad).result()
    check_sums([future.result() for future in futures], right)


def test_futures_do_not_share_an_exception(fail: Fail, monkeypatch: pytest.MonkeyPatch) -> None:
    with gx.GpuExecutor("vulkan", tries=1) as executor:
        fail("vkQueueSubmit", code_of(LOST))
        jobs = [words(COUNT, number) for number in range(JOBS)]
        outcomes = run_as_batch(executor, ADD, jobs, [None] * JOBS)
        monkeypatch.undo()
    assert len({id(each) for each in outcomes}) == JOBS
    assert len({str(each) for each in outcomes}) == 1
    lengths = [len(traceback.extract_tb(each.__traceback__)) for each in outcomes]
    for each in outcomes[:5]:
        with pytest.raises(gx.DeviceLostError):
            raise each
    again = [len(traceback.extract_tb(each.__traceback__)) for each in outcomes]
    assert again[5:] == lengths[5:], (
        "raising from one future does not extend the traceback of another"
    )


def test_a_copied_error_keeps_its_attributes() -> None:
    for error in (
        gx.DeviceLostError("vkQueueSubmit", -4, "gone"),
        gx.ElementRangeError("kernel", 1, 3),
        gx.OutOfMemoryError("none left"),
        OSError(2, "not there"),
        KeyboardInterrupt(),
        ValueError(),
    ):
        error.add_note("said before")
        copy = copy_exception(error)
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
        copy.add_note("said to one")
        assert error.__notes__ == ["said before"]


@pytest.mark.parametrize("waiting", [True, False], ids=["in the waiting thread", "in the worker"])
def test_a_failed_job_keeps_its_arrays_no_longer_than_its_error(
    executor: gx.GpuExecutor, fail: Fail, monkeypatch: pytest.MonkeyPatch, waiting: bool
) -> None:
    monkeypatch.setattr(logging.getLogger("gpu_executor.executor"), "disabled", True)
    gc.collect()
    gc.disable()
    try:
        a, b = words(50)
        gone = weakref.ref(a)
        fail("vkQueueSubmit", code_of(LOST))
        future = executor.submit(ADD, a, b)
        if waiting:
            assert isinstance(future.exception(), gx.DeviceLostError)
        else:
            wait([future])
        del a, future
        while gone() is not None and not waiting:
            time.sleep(0.001)  # the worker still refers to it
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("way", ["run", "submit", "run_batch", "map", "iterable"])
def test_argument_errors_keep_no_arrays(executor: gx.GpuExecutor, way: str) -> None:
    def arrays(a: Any) -> Iterator[Any]:
        yield a
        raise KeyError("no more of them")

    a, b = words(50)
    gone = weakref.ref(a)
    ways: dict[str, Callable[[Any], object]] = {
        "run": lambda a: executor.run(ADD, a, b[:3]),
        "submit": lambda a: executor.submit(ADD, a, b[:3]).result(),
        "run_batch": lambda a: executor.run_batch(ADD, [(a, b[:3])] * 3),
        "map": lambda a: list(executor.map(ADD, [a] * 3, [b[:3]] * 3)),
        "iterable": lambda a: list(executor.map(ADD, arrays(a), [b] * 3)),
    }
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(gx.GpuError, KeyError):
            ways[way](a)
            pytest.fail("it was not refused")
        del a
        end = time.monotonic() + PATIENCE
        while gone() is not None and time.monotonic() < end:
            time.sleep(0.001)  # the worker still refers to it
        assert gone() is None
    finally:
        gc.enable()
