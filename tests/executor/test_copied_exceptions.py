"""Copies of exceptions for several futures."""

from __future__ import annotations

import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLostError, ElementRangeError, WrongResultError
from gpu_executor.executor.jobs import copy_exception, copy_exception_for_each
from tests.support.executors import HeldKernel, held, make_kernel, words
from tests.support.threads import PATIENCE

__all__ = ["held"]


class OfTwoError(Exception):
    """An exception that `copy` cannot copy: its class cannot be called with its `args`."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class MissingError(Exception):
    """An exception whose message differs from its argument."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no {name}")
        self.name = name


class Stop(KeyboardInterrupt):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


@pytest.mark.parametrize(
    "error",
    [
        MissingError("kernel"),
        ValueError("no", 3),
        FileNotFoundError(2, "not there", "a file"),
        ElementRangeError("add", 1, 5),
        WrongResultError("add", 0, 5, "a device"),
        DeviceLostError("vkQueueSubmit", -4, "lost"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copied_exception_has_no_traceback_and_is_equal_otherwise(error: Exception) -> None:
    error.add_note("a note")
    error.__cause__ = cause = KeyError("why")
    with pytest.raises(type(error)):
        raise error
    another = copy_exception(error)
    assert another is not error and type(another) is type(error)
    assert (str(another), another.args) == (str(error), error.args)
    assert another.__dict__ == error.__dict__
    assert another.__notes__ is not error.__notes__
    assert (another.__cause__, another.__traceback__) == (cause, None)


def test_an_exception_that_cannot_be_copied_is_returned_itself() -> None:
    error = OfTwoError(1, 2)
    assert copy_exception_for_each(error, 3) == [error] * 3


def test_every_future_of_a_batch_gets_the_exception(held: HeldKernel) -> None:
    def stop(*_arrays: object) -> object:
        raise Stop(1, 2)

    kernel = make_kernel(stop)
    with gx.GpuExecutor("cpu") as executor:
        held.hold(executor)
        futures = [executor.submit(kernel, *words(3)) for _ in range(3)]
        held.released.set()
        for future in futures:
            error = future.exception(PATIENCE)
            assert isinstance(error, Stop) and str(error) == "1 and 2"
