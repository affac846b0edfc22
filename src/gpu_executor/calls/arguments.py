"""Arguments: checks of what callers pass to executors and backends, apart from the arrays of a
kernel, which `calls/call.py` checks.

An argument that cannot be used raises an error that names it, what was found and what it takes.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import check_jobs_disjoint
from gpu_executor.arrays.typed_array import TypedArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, OutOfMemoryError
from gpu_executor.kernel import Kernel, Shape

Array = np.ndarray[Any, np.dtype[Any]]
F = TypeVar("F", bound=Callable[..., Any])
NUMBERS = "biufc"
"""The kinds of NumPy's dtypes of numbers."""
MAX_AXES = 64
"""The most axes that an array of NumPy has."""


def rename_keywords(**new_names: str) -> Callable[[F], F]:
    """Decorate a function so that a keyword which it had before raises an error with the new name.
    The function does not have that keyword: type checkers and the documentation see the new one."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for old, new in new_names.items():
                if old in options:
                    raise ArgumentTypeError(
                        f"{function.__name__}: the keyword {old}= is called {new}= now"
                    )
            return function(*args, **options)

        return cast(F, call)

    return decorate


def check_is_kernel(kernel: Any) -> None:
    """Raise `ArgumentTypeError` unless the argument is a kernel."""
    if not isinstance(kernel, Kernel):
        raise ArgumentTypeError(
            f"the first argument is {describe(kernel)}, not a Kernel; load one with "
            "gx.kernels.load(name) or make one with gx.Kernel.from_glsl(text)"
        )


def is_masked(array: object) -> bool:
    """Whether an object is a NumPy masked array.

    Does not import `numpy.ma`, which `import numpy` does not load either: without that module
    there are no masked arrays.
    """
    if type(array) is np.ndarray:
        return False
    return isinstance(array, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def as_numbers(call: str, array: Any) -> Array:
    """The argument of a call as a NumPy array of numbers: the array itself where it is one."""
    if isinstance(array, DeviceArray):
        raise ArgumentTypeError(
            f"{call}: the array is on a device already; array.numpy() copies it to the host"
        )
    if is_masked(array):
        raise ArgumentTypeError(
            f"{call}: the array is masked, and devices ignore masks; pass its .data, or "
            ".filled(value)"
        )
    try:
        found = np.asarray(array)
    except ValueError as error:
        raise ArgumentTypeError(f"{call}: the argument is no array: {error}") from None
    if found.dtype.kind in NUMBERS:
        return found
    if not isinstance(array, np.ndarray):
        raise ArgumentTypeError(
            f"{call}: the argument is {describe(array)}, which is no array of numbers"
        )
    if array.dtype.names is not None:
        raise ArgumentTypeError(
            f"{call}: the array has the structured dtype {array.dtype}, and it takes numbers; pass "
            "the array to run as it is, whose keep=True leaves results on the device, or declare "
            "the kernel's elements as words with buffers= and pass array.view(np.uint32)"
        )
    raise ArgumentTypeError(
        f"{call}: the array has dtype {array.dtype}, and it takes numbers; array.view(dtype) reads "
        "the same bytes as numbers"
    )


def convert_assigned(value: Any, dtype: np.dtype[Any]) -> Array:
    """A value that is assigned to an array of that dtype, as a NumPy array of it.

    An array is cast within its kind of numbers. A number must fit the dtype.
    """
    found = as_numbers("assignment", value)
    if not isinstance(value, np.ndarray | np.generic):
        fits = found.dtype.kind in "iub" or dtype.kind in "fc"
        with contextlib.suppress(OverflowError, TypeError):
            if fits:
                return np.asarray(value, dtype)
    elif np.can_cast(found.dtype, dtype, "same_kind"):
        return found.astype(dtype, copy=False)
    raise ArgumentTypeError(
        f"assignment: {describe(value)} of {found.dtype} does not fit an array of {dtype}; convert "
        f"it with .astype(np.{dtype})"
    )


def parse_dtype(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype, which must be one of numbers."""
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise ArgumentTypeError(f"dtype is {dtype!r}: {error}") from None
    if found.kind not in NUMBERS:
        raise ArgumentTypeError(
            f"dtype {found} cannot lie in device memory; only numeric dtypes can"
        )
    return found


def parse_shape(shape: Any, itemsize: int) -> Shape:
    """The shape of a new array, given as one length or as a sequence of lengths."""
    try:
        lengths = (_as_length(shape),) if _is_scalar(shape) else tuple(map(_as_length, shape))
    except TypeError:
        raise ArgumentTypeError(
            f"shape is {shape!r}; it must be a whole number, or a tuple of whole numbers"
        ) from None
    if min(lengths, default=0) < 0:
        raise ArgumentShapeError(f"shape {shape} has a negative extent; extents must be 0 or more")
    if len(lengths) > MAX_AXES:
        raise ArgumentShapeError(f"shape has {len(lengths)} axes; an array has at most {MAX_AXES}")
    nbytes = itemsize
    for length in lengths:
        nbytes *= length
    if nbytes > sys.maxsize:
        raise OutOfMemoryError(
            f"an array of shape {shape} has {nbytes:,} bytes, more than any memory; make a smaller "
            "one"
        )
    return lengths


def is_integer(value: Any) -> bool:
    """Whether a value is one integer, as Python or NumPy has it; booleans and arrays are none."""
    return hasattr(value, "__index__") and not isinstance(value, bool | np.bool_ | TypedArray)


def parse_count(call: str, count: Any, least: int = 0) -> int:
    """A number of elements."""
    try:
        number = _as_length(count)
    except TypeError:
        number = -1
    if not least <= number < 1 << 40:
        raise ArgumentShapeError(
            f"{call}: the number of elements is {count!r}; it must be a whole number from {least} "
            "to 2^40 - 1"
        )
    return number


def iterate(name: str, argument: Any) -> Iterator[Any]:
    """An iterator over an argument."""
    try:
        return iter(argument)
    except TypeError:
        raise ArgumentTypeError(f"{name} is {describe(argument)}; it must be an iterable") from None


def zip_iterables(iterables: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The calls of `map`: one item of each iterable, as long as none is exhausted."""
    return zip(
        *(iterate(f"iterable {index} of map", each) for index, each in enumerate(iterables)),
        strict=False,
    )


def collect_jobs(
    jobs: Iterable[Any], out: Iterable[Any] | None
) -> tuple[list[tuple[Any, ...]], list[Any] | None]:
    """The jobs of a batch as tuples of arrays, and their outputs; no job may use what another one
    writes to."""
    calls: list[tuple[Any, ...]] = []
    for index, arrays in enumerate(iterate("jobs", jobs)):
        if not isinstance(arrays, tuple | list):
            raise ArgumentTypeError(
                f"job {index}: a job is a tuple of arrays, not {describe(arrays)}"
            )
        calls.append(tuple(arrays))
    if out is None:
        return calls, None
    outs = list(iterate("out", out))
    if len(outs) != len(calls):
        raise ArgumentTypeError(
            f"out has {len(outs)} entries for {len(calls)} jobs; it needs one for each job"
        )
    check_jobs_disjoint(calls, outs)
    return calls, outs


def describe(value: Any) -> str:
    """The type of an object, in words."""
    name = type(value).__name__
    article = "an" if name.startswith(("a", "e", "i", "o", "A", "E", "I", "O", "ndarray")) else "a"
    return f"{article} {name}"


def count_nouns(count: int, noun: str) -> str:
    """A number with its noun: "1 array", "2 arrays"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _is_scalar(shape: Any) -> bool:
    return isinstance(shape, str | bytes) or not hasattr(shape, "__len__")


def _as_length(value: Any) -> int:
    """A whole number of any type except bool; raises `TypeError`."""
    if isinstance(value, bool | np.bool_):
        raise TypeError
    return operator.index(value)
