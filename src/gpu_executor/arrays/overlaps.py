"""Overlaps: whether arrays share memory, and whether jobs that run together do.

The jobs of a batch or a stream run concurrently, and a job that failed may run again. So no job may
use memory that another one writes to: it would read or return some of the other job's elements.
Arrays of one job may overlap as `calls/call.py` allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from gpu_executor.arrays.typed_array import get_words
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


def overlaps_itself(array: Array) -> bool:
    """Whether two elements of an array may be the same memory, as in a broadcast array."""
    if array.flags.c_contiguous or not array.size:
        return False
    nbytes = array.itemsize
    axes = zip(map(abs, array.strides), array.shape, strict=True)
    for stride, length in sorted(axis for axis in axes if axis[1] > 1):
        if stride < nbytes:
            return True
        nbytes = stride * (length - 1) + nbytes
    return False


def is_same_view(a: Array, b: Array) -> bool:
    """Whether element i of both arrays is the same memory, for every i; contiguous arrays may have
    other shapes."""
    compared = ("data", "strides", "typestr")
    one, other = a.__array_interface__, b.__array_interface__
    return a.size == b.size and all(one[key] == other[key] for key in compared)


def find_address_range(array: Array) -> tuple[int, int]:
    """The address of an array's first byte, and the address after its last byte."""
    start: int = array.__array_interface__["data"][0]
    steps = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    first = start + sum(step for step in steps if step < 0)
    return first, start + sum(step for step in steps if step > 0) + array.itemsize


def select_host_arrays(arrays: Iterable[Any]) -> list[Array]:
    """The NumPy arrays among some objects, and the words of typed arrays on the host."""
    return [words for each in arrays if isinstance(words := get_words(each), np.ndarray)]


def list_outputs(out: Any) -> Sequence[Any]:
    """What a job's `out` or its result consists of: nothing, one array, or several; the words of a
    typed array."""
    if out is None:
        return ()
    if type(out) is np.ndarray:  # nearly always
        return (out,)
    return [get_words(each) for each in out] if isinstance(out, tuple | list) else (get_words(out),)


def check_jobs_disjoint(jobs: Sequence[Sequence[Any]], outs: Sequence[Any] | None) -> None:
    """Raise `ArgumentShapeError` if a job of a batch uses memory that another one writes to."""
    conflict = find_conflict(jobs, outs)
    if conflict is not None:
        raise ArgumentShapeError(conflict)


def find_conflict(jobs: Sequence[Sequence[Any]], outs: Sequence[Any] | None) -> str | None:
    """Which job of a batch uses memory that another one writes to, in words; None if none does."""
    if outs is None or len(jobs) < 2 or all(out is None for out in outs):
        return None
    written = [list_outputs(out) for out in outs]
    shared = _find_shared_owners(jobs, written)
    if not shared:
        return None
    uses = [
        use
        for number, (arrays, outputs) in enumerate(zip(jobs, written, strict=True))
        for use in _list_uses(number, arrays, outputs)
        if None in shared or use.owner in shared
    ]
    return None if _are_interleaved(uses) else _compare_address_ranges(uses)


class JobsInFlight:
    """The jobs of a stream whose results were not taken yet, oldest first."""

    def __init__(self) -> None:
        self._jobs: deque[tuple[set[int | None], list[_Use]]] = deque()
        """The owners of each job's memory, and its arrays."""

    def add(self, number: int, arrays: Sequence[Any], out: Any) -> None:
        """Add a job; `ArgumentShapeError` if it and a job in flight may not run together."""
        new = _list_uses(number, arrays, list_outputs(out))
        owners = {use.owner for use in new}
        for known, old in self._jobs:
            if owners.isdisjoint(known) and None not in owners and None not in known:
                continue  # nearly always
            for use in new:
                for other in old:
                    if use.conflicts_with(other):
                        raise ArgumentShapeError(
                            f"{_describe_conflict(use, other)}; an array may come again after its "
                            "job's result was taken"
                        )
        self._jobs.append((owners, new))

    def remove_oldest(self) -> None:
        """Remove the job whose result is taken."""
        self._jobs.popleft()


class _Use:
    """An array that a job reads or writes."""

    __slots__ = ("argument", "array", "job", "owner", "writes")

    def __init__(self, job: int, writes: bool, argument: int, array: Array) -> None:
        self.job, self.writes, self.argument, self.array = job, writes, argument, array
        self.owner = _find_owner(array)

    def conflicts_with(self, other: _Use) -> bool:
        """Whether one of two jobs writes to memory that both use."""
        return (
            (self.writes or other.writes)
            and (self.owner == other.owner or self.owner is None or other.owner is None)
            and may_overlap(self.array, other.array)
        )

    def __str__(self) -> str:
        return f"{'out' if self.writes else 'argument'} {self.argument}"


def _list_uses(job: int, arrays: Sequence[Any], outputs: Sequence[Any]) -> list[_Use]:
    return [
        _Use(job, writes, index, array)
        for writes, each in ((False, arrays), (True, outputs))
        for index, array in enumerate(map(get_words, each))
        if isinstance(array, np.ndarray)
    ]


def _find_owner(array: Array) -> int | None:
    """The id of the object that owns an array's memory; None if that may be shared with another
    object. Arrays of different owners do not overlap."""
    owner: Any = array
    while True:
        while isinstance(owner, np.ndarray):
            if owner.base is None:
                return id(owner) if owner.flags.owndata else None
            owner = owner.base
        if hasattr(owner, OWNER_MARK) or isinstance(owner, bytearray):
            return id(owner)
        if not isinstance(owner, memoryview):
            return None
        owner = owner.obj


def _find_shared_owners(
    jobs: Sequence[Sequence[Any]], written: Sequence[Sequence[Any]]
) -> set[int | None]:
    """The owners of memory that one job writes to and another one uses, perhaps other parts of it;
    None among them if an owner is unknown."""
    writers: dict[int | None, int] = {}
    shared: set[int | None] = set()
    for job, outputs in enumerate(written):
        for array in select_host_arrays(outputs):
            owner = _find_owner(array)
            if owner is None or writers.setdefault(owner, job) != job:
                shared.add(owner)
    for job, arrays in enumerate(jobs):
        for array in select_host_arrays(arrays):
            owner = _find_owner(array)
            if owner is None or writers.get(owner, job) != job:
                shared.add(owner)
    return shared


def _are_interleaved(uses: Sequence[_Use]) -> bool:
    """Whether all jobs write to blocks of bytes at one common distance, and no blocks overlap: the
    columns of a matrix. Comparing each pair of them would take a time quadratic in their number."""
    distances = set()
    for use in uses:
        if not use.writes:
            return False
        distances.add(_find_blocks(use.array))
    if len(distances) != 1:
        return False
    ((distance, nbytes),) = distances
    if not distance:
        return False
    offsets = sorted(use.array.__array_interface__["data"][0] % distance for use in uses)
    return all(
        after - before >= nbytes for before, after in pairwise([*offsets, offsets[0] + distance])
    )


def _find_blocks(array: Array) -> tuple[int, int]:
    """The distance and the size in bytes of the blocks that an array consists of; a distance of 0
    if they are not at one distance, or if there is one block."""
    nbytes = array.itemsize
    axes = [(n, stride) for n, stride in zip(array.shape, array.strides, strict=True) if n != 1]
    while axes and axes[-1][1] == nbytes:
        nbytes *= axes.pop()[0]
    return (axes[0][1], nbytes) if len(axes) == 1 and axes[0][1] >= nbytes else (0, nbytes)


def _compare_address_ranges(uses: Sequence[_Use]) -> str | None:
    """Compare the address ranges of all arrays in ascending order, and the elements of those whose
    ranges overlap."""
    ranges = [(*find_address_range(use.array), use) for use in uses if use.array.size]
    ranges.sort(key=lambda each: each[0])
    reads: list[tuple[int, _Use]] = []
    writes: list[tuple[int, _Use]] = []
    for start, end, use in ranges:
        writes = [each for each in writes if each[0] > start]
        before = writes
        if use.writes:
            reads = [each for each in reads if each[0] > start]
            before = writes + reads
        for _, other in before:
            if other.job != use.job and may_overlap(use.array, other.array):
                return _describe_conflict(use, other)
        (writes if use.writes else reads).append((end, use))
    return None


def _describe_conflict(one: _Use, other: _Use) -> str:
    first, second = sorted((one, other), key=lambda use: use.job)
    return (
        f"job {second.job}: {second} overlaps {first} of job {first.job}, and jobs run "
        "concurrently; no other job may use the memory of an out"
    )
