"""Overlaps: arrays that share memory, and jobs that must not run together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.arrays.overlaps import (
    JobsInFlight,
    check_jobs_disjoint,
    find_conflict,
    overlaps_itself,
)
from gpu_executor.errors import ArgumentShapeError

Array = np.ndarray[Any, np.dtype[Any]]
SLICES = st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from([1, 2, 3, -1, -2]))


def make(count: int = 4) -> Array:
    return np.zeros(count, np.uint32)


def test_jobs_with_memory_of_their_own_do_not_conflict() -> None:
    shared = make()
    jobs = [(make(), shared) for _ in range(3)]
    check_jobs_disjoint(jobs, [make() for _ in jobs])
    check_jobs_disjoint(jobs, None)
    check_jobs_disjoint(jobs, [None, make(), None])


def test_an_out_that_comes_twice_is_refused() -> None:
    out = make()
    words = "job 2: out 0 overlaps out 0 of job 0, and jobs run concurrently; no other job may"
    with pytest.raises(ArgumentShapeError, match=re.escape(words)):
        check_jobs_disjoint([(make(),)] * 3, [out, make(), out])


def test_an_argument_that_another_job_writes_to_is_refused() -> None:
    a, b = make(), make()
    assert find_conflict([(a,), (b,)], [b, make()]) is not None
    words = find_conflict([(a, make()), (make(), a)], [a, None])
    assert words is not None
    assert words.startswith("job 1: argument 1 overlaps out 0 of job 0")


def test_a_job_may_write_to_its_own_argument() -> None:
    arrays = [make() for _ in range(3)]
    assert find_conflict([(each,) for each in arrays], arrays) is None


def test_several_outputs_of_a_job_are_compared() -> None:
    whole = make(8)
    outs = [(make(), whole[:4]), (whole[3:7], make())]
    words = find_conflict([(make(),), (make(),)], outs)
    assert words is not None
    assert words.startswith("job 1: out 0 overlaps out 1 of job 0")


@pytest.mark.parametrize(
    "alias",
    [
        lambda array: array[:],
        lambda array: array[::-1],
        lambda array: np.asarray(memoryview(array)),
        lambda array: np.frombuffer(memoryview(array).cast("B"), np.uint32),
        lambda array: np.ndarray(array.shape, array.dtype, array),
        lambda array: array.view(np.uint8),
        lambda array: np.ctypeslib.as_array(np.ctypeslib.as_ctypes(array)),
        lambda array: np.lib.stride_tricks.as_strided(array, (2,), (4,)),
    ],
)
def test_the_same_memory_is_found_through_every_kind_of_view(
    alias: Callable[[Array], Array],
) -> None:
    array = make()
    other = alias(array)
    assert find_conflict([(make(),), (make(),)], [array, other]) is not None
    assert find_conflict([(make(),), (other,)], [array, None]) is not None


def test_views_of_one_buffer_are_compared_by_address() -> None:
    buffer = bytearray(32)
    parts = [np.frombuffer(buffer, np.uint32, 4, offset) for offset in (0, 16, 12)]
    assert find_conflict([(make(),), (make(),)], parts[:2]) is None
    assert find_conflict([(make(),), (make(),)], parts[1:]) is not None


def test_columns_of_a_matrix_do_not_overlap() -> None:
    matrix = np.zeros((5, 40), np.uint32)
    columns = [matrix[:, number] for number in range(40)]
    assert find_conflict([(make(),)] * 40, columns) is None
    assert find_conflict([(make(),)] * 40, [*columns[:-1], matrix[2, 7:8]]) is not None


@pytest.mark.parametrize("shape", [(7, 300), (7, 300, 2), (7, 1, 300, 2, 3), (1, 300)])
def test_many_columns_are_compared_at_once(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    matrix = np.zeros(shape, np.uint32)
    axis = shape.index(300)
    columns = list(np.moveaxis(matrix, axis, 0))
    jobs = [(make(),)] * 300
    with monkeypatch.context() as patch:
        if shape[0] > 1:  # one row is contiguous
            patch.setattr(np, "shares_memory", None)
        assert find_conflict(jobs, columns) is None
    assert find_conflict(jobs, [*columns[:-1], columns[7]]) is not None
    shifted = matrix.reshape(-1).view(np.uint8)[2:-2].view(np.uint32)[: columns[0].size]
    assert find_conflict(jobs, [*columns[:-1], shifted]) is not None


def test_empty_arrays_overlap_nothing() -> None:
    array = make()
    assert find_conflict([(array,), (array,)], [array[:0], array[2:2]]) is None


@given(st.lists(st.tuples(SLICES, SLICES), min_size=2, max_size=6))
def test_a_conflict_is_found_exactly_where_elements_are_shared(
    slices: Sequence[tuple[tuple[int, int, int], tuple[int, int, int]]],
) -> None:
    memory = np.arange(12)
    jobs = [(memory[slice(*read)],) for read, _ in slices]
    outs = [memory[slice(*written)] for _, written in slices]
    expected = any(
        set(outs[i].tolist()) & (set(outs[j].tolist()) | set(jobs[j][0].tolist()))
        for i in range(len(slices))
        for j in range(len(slices))
        if i != j
    )
    assert (find_conflict(jobs, outs) is not None) == expected


def test_an_array_may_come_again_when_its_result_was_taken() -> None:
    first, second = make(), make()
    in_flight = JobsInFlight()
    in_flight.add(0, (make(),), first)
    in_flight.add(1, (make(),), second)
    in_flight.remove_oldest()
    in_flight.add(2, (first,), make())
    words = "job 3: out 0 overlaps out 0 of job 1.* may come again after its job's result was taken"
    with pytest.raises(ArgumentShapeError, match=words):
        in_flight.add(3, (make(),), second)
    with pytest.raises(ArgumentShapeError, match="job 3: argument 0 overlaps out 0 of job 1"):
        in_flight.add(3, (second,), make())
    with pytest.raises(ArgumentShapeError, match="job 3: out 0 overlaps argument 0 of job 2"):
        in_flight.add(3, (make(),), np.asarray(memoryview(first)))  # type: ignore[arg-type]


@given(
    st.lists(st.integers(0, 3), max_size=3),
    st.lists(st.sampled_from([-12, -8, -4, 0, 2, 4, 8, 12, 24, 36]), min_size=3, max_size=3),
)
def test_an_array_whose_elements_share_bytes_overlaps_itself(
    shape: list[int], strides: list[int]
) -> None:
    start = np.zeros(400, np.uint8)[200:].view(np.uint32)
    array = np.lib.stride_tricks.as_strided(start, shape, strides[: len(shape)])
    offsets = [
        sum(index * stride for index, stride in zip(indices, array.strides, strict=True))
        for indices in np.ndindex(*shape)
    ]
    used = [offset + byte for offset in offsets for byte in range(4)]
    if len(set(used)) < len(used):
        assert overlaps_itself(array)
    elif overlaps_itself(array):  # the only false alarm: strides that are no multiples
        spans = sorted(abs(stride) for stride, n in zip(array.strides, shape, strict=True) if n > 1)
        assert any(after % before for before, after in pairwise(spans)) or spans[0] < 4


def test_usual_views_do_not_overlap_themselves() -> None:
    array = np.zeros((6, 8, 3), np.uint32)
    for view in (
        array[::2, ::-3],
        array.T,
        array[:, 3],
        array.transpose(1, 0, 2),
        array[:0],
        np.zeros(9, [("x", "u4"), ("y", "u8")])["x"],
        np.lib.stride_tricks.sliding_window_view(array, 1, 0),
    ):
        assert not overlaps_itself(view)
    assert overlaps_itself(np.lib.stride_tricks.sliding_window_view(array, 2, 0))
    assert overlaps_itself(np.broadcast_to(array, (2, 6, 8, 3)))
