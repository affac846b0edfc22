"""Overlaps: whether arrays share memory, and whether jobs that run together do.

The jobs of a batch or a stream run concurrently, and a job that failed may run again. So no job may
use memory that another one writes to: it would read or return some of the other job's elements.
Arrays of one job may overlap as `call.py` allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from gpu_executor.errors import ArgumentShapeError

Array = np.ndarray[Any, np.dtype[Any]]
MAX_WORK = 10_000
"""Candidates that NumPy tries before it gives up to find out whether two arrays overlap."""

OWNER_MARK = "owns_memory"
"""Attribute of the ctypes arrays under mapped arrays. Other ctypes arrays may be over memory that
another object owns."""


def may_overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share an element; True where that takes too long to find out."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=MAX_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def is_same_view(a: Array, b: Array) -> bool:
    """Whether element i of both arrays is the same memory, for every i."""
    compared = ("data", "strides", "typestr")
    one, other = a.__array_interface__, b.__array_interface__
    return a.size == b.size and all(one[key] == other[key] for key in compared)


def find_address_range(array: Array) -> tuple[int, int]:
    """The address of an array's first byte, and the address after its last byte."""
    start: int = array.__array_interface__["data"][0]
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    first = start + sum(step for step in steps if step < 0)
    return first, start + sum(step for step in steps if step > 0) + array.itemsize


def select_host_arrays(arrays: Iterable[Any]) -> Iterator[Array]:
    """The NumPy arrays among some objects."""
    return (each for each in arrays if isinstance(each, np.ndarray))


def list_outputs(out: Any) -> Sequence[Any]:
    """What a job's `out` consists of: nothing, one array, or several."""
    if out is None:
        return ()
    return out if isinstance(out, tuple | list) else (out,)


def check_jobs_disjoint(jobs: Sequence[Sequence[Any]], outs: Sequence[Any] | None) -> None:
    """Raise `ArgumentShapeError` if a job of a batch uses memory that another one writes to."""
    conflict = find_conflict(jobs, outs)
    if conflict is not None:
        raise ArgumentShapeError(conflict)


def find_conflict(jobs: Sequence[Sequence[Any]], outs: Sequence[Any] | None) -> str | None:
    """Which job of a batch uses memory that another one writes to, in words; None if none does."""
    if outs is None or len(jobs) < 2 or all(out is None for out in outs):
        return None
    uses = [
        _JobMemory(number, arrays, list_outputs(out))
        for number, (arrays, out) in enumerate(zip(jobs, outs, strict=True))
    ]
    if _have_owners_of_their_own(uses):
        return None
    return _find_conflicting_ranges(uses)


class JobsInFlight:
    """The jobs of a stream whose results were not taken yet, oldest first."""

    def __init__(self) -> None:
        self._jobs: deque[_JobMemory] = deque()

    def add(self, number: int, arrays: Sequence[Any], out: Any) -> None:
        """Add a job; `ArgumentShapeError` if it and a job in flight may not run together."""
        new = _JobMemory(number, arrays, list_outputs(out))
        for old in self._jobs:
            if new.may_conflict(old):
                conflict = _find_conflicting_ranges([old, new])
                if conflict is not None:
                    raise ArgumentShapeError(
                        f"{conflict}; an array may come again after its job's result was taken"
                    )
        self._jobs.append(new)

    def remove_oldest(self) -> None:
        """Remove the job whose result is taken."""
        self._jobs.popleft()


class _JobMemory:
    """The arrays of one job, and the objects that own their memory."""

    __slots__ = ("arrays", "number", "outputs", "read", "written")

    def __init__(self, number: int, arrays: Sequence[Any], outputs: Sequence[Any]) -> None:
        self.number, self.arrays, self.outputs = number, arrays, outputs
        self.read = _list_owners(arrays)
        self.written = _list_owners(outputs)

    def may_conflict(self, other: _JobMemory) -> bool:
        """Whether either job may write to memory of the other one, judged by the owners."""
        if None in self.read or None in self.written or None in other.read or None in other.written:
            return True
        return not (
            self.written.isdisjoint(other.written)
            and self.written.isdisjoint(other.read)
            and self.read.isdisjoint(other.written)
        )


def _list_owners(arrays: Sequence[Any]) -> set[int | None]:
    """The ids of the objects that own the arrays' memory; None among them if one is unknown."""
    return {_find_owner(each) for each in arrays if isinstance(each, np.ndarray)}


def _find_owner(array: Array) -> int | None:
    """The id of the object that owns an array's memory; None if that may be shared with another
    object. Arrays of different owners do not overlap."""
    owner: Any = array
    while True:
        if isinstance(owner, np.ndarray):
            if owner.base is None:
                return id(owner) if owner.flags.owndata else None
            owner = owner.base
        elif isinstance(owner, memoryview):
            owner = owner.obj
        elif isinstance(owner, bytearray) or hasattr(owner, OWNER_MARK):
            return id(owner)
        else:
            return None


def _have_owners_of_their_own(jobs: Sequence[_JobMemory]) -> bool:
    """Whether the memory that each job writes to has owners that no other job uses."""
    writers: dict[int | None, int] = {}
    for job in jobs:
        for owner in job.written:
            if owner is None or owner in writers:
                return False
            writers[owner] = job.number
    return all(
        owner is not None and writers.get(owner, job.number) == job.number
        for job in jobs
        for owner in job.read
    )


class _Use(NamedTuple):
    start: int
    end: int
    job: int
    writes: bool
    argument: int
    array: Array

    def __str__(self) -> str:
        return f"{'out' if self.writes else 'argument'} {self.argument}"


def _find_conflicting_ranges(jobs: Sequence[_JobMemory]) -> str | None:
    """Compare the address ranges of all arrays in ascending order, and the elements of those whose
    ranges overlap."""
    uses = [
        _Use(*find_address_range(array), job.number, writes, index, array)
        for job in jobs
        for writes, arrays in ((False, job.arrays), (True, job.outputs))
        for index, array in enumerate(arrays)
        if isinstance(array, np.ndarray) and array.size
    ]
    uses.sort(key=lambda use: use.start)
    reads: list[_Use] = []
    writes: list[_Use] = []
    for use in uses:
        writes = [other for other in writes if other.end > use.start]
        before = writes
        if use.writes:
            reads = [other for other in reads if other.end > use.start]
            before = writes + reads
        for other in before:
            if other.job != use.job and may_overlap(use.array, other.array):
                return _describe_conflict(use, other)
        (writes if use.writes else reads).append(use)
    return None


def _describe_conflict(one: _Use, other: _Use) -> str:
    first, second = sorted((one, other), key=lambda use: use.job)
    return (
        f"job {second.job}: {second} overlaps {first} of job {first.job}, and jobs run "
        "concurrently; no other job may use the memory of an out"
    )
