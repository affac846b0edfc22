"""What callers give to an executor, checked as far as it does not depend on a device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gpu_executor.call import check
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.kernel import Kernel


def kernel_in(
    fn: Any, by: str = "a GpuExecutor", functions_by: str = "a ThreadPoolExecutor"
) -> Kernel:
    """What is to be run; a function is not."""
    if not isinstance(fn, Kernel):
        if not callable(fn):
            check(fn, ())  # which says what a kernel is: this is no function either
        name = getattr(fn, "__name__", type(fn).__name__)
        raise ArgumentTypeError(
            f"{by} runs kernels, and {name!r} is none; functions are for {functions_by}"
        )
    return fn


def out_in(options: dict[str, Any]) -> Any:
    """The only keyword that `submit` takes."""
    out = options.pop("out", None)
    if options:
        raise ArgumentTypeError(f"submit takes out=, not {', '.join(options)}")
    return out


def calls_in(jobs: Iterable[Sequence[Any]], out: Sequence[Any] | None) -> list[tuple[Any, ...]]:
    """The jobs of a batch, each a tuple of arrays."""
    calls: list[tuple[Any, ...]] = []
    for index, arrays in enumerate(jobs):
        if not isinstance(arrays, tuple | list):
            found = type(arrays).__name__
            raise ArgumentTypeError(f"job {index}: a job is a tuple of arrays, not a {found}")
        calls.append(tuple(arrays))
    if out is not None and len(out) != len(calls):
        raise ArgumentTypeError(f"out has {len(out)} entries for {len(calls)} jobs")
    return calls


def check_sizes(chunksize: int, buffersize: int | None) -> None:
    """How far a `map` may go ahead."""
    if chunksize < 1:
        raise ValueError(f"chunksize is {chunksize}; it is 1 at least")
    if buffersize is not None and buffersize < 1:
        raise ValueError(f"buffersize is {buffersize}; it is 1 at least, or None")
