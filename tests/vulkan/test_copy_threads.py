"""Shared copies: every byte is copied once, in any layout; errors are raised; threads end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.vulkan import copy_threads
from gpu_executor.vulkan.copy_threads import SMALLEST_SEGMENT, CopyThreads, Pair, _split_pairs
from tests.support.threads import in_threads

Array = npt.NDArray[Any]
LARGE = 16 * SMALLEST_SEGMENT


@pytest.fixture(params=[1, 2, 8])
def copiers(request: pytest.FixtureRequest) -> Iterator[CopyThreads]:
    before = set(threading.enumerate())
    made = CopyThreads(request.param)
    yield made
    made.close()
    assert set(threading.enumerate()) <= before


def numbers(nbytes: int, dtype: Any, *columns: int) -> Array:
    """Rows of so many columns, all different enough."""
    kind: np.dtype[Any] = np.dtype(dtype)
    count = nbytes // kind.itemsize
    row = int(np.prod(columns))
    flat = np.arange(count // row * row) * 2_654_435_761
    return flat.astype(kind).reshape(-1, *columns)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "plain": lambda x: x,
    "every other": lambda x: np.repeat(x, 2, axis=0)[::2],
    "reversed": lambda x: x[::-1],
    "transposed": np.asfortranarray,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
}


DTYPES: list[tuple[str, tuple[int, ...]]] = [
    ("u8", (6,)),
    ("u4", ()),
    ("f4", (3, 5)),
    ("i2", (7,)),
    ("c16", (2,)),
]


@pytest.mark.parametrize(
    ("dtype", "columns", "layout"),
    [
        *((*DTYPES[0], layout) for layout in LAYOUTS),
        *((*each, layout) for each in DTYPES[1:] for layout in ("transposed", "big-endian")),
    ],
)
def test_large_arrays_of_any_dtype_and_layout_are_copied(
    copiers: CopyThreads, dtype: str, columns: tuple[int, ...], layout: str
) -> None:
    source = LAYOUTS[layout](numbers(LARGE, dtype, *columns))
    room = np.zeros((len(source) + 2, *columns), dtype)
    copiers.copy([(room[1:-1], source)])
    np.testing.assert_array_equal(room[1:-1], source)
    assert not room[0].any() and not room[-1].any()


@pytest.mark.parametrize("sizes", [(LARGE, 8), (8, LARGE, 48, LARGE // 3), (LARGE // 2,) * 5, ()])
def test_pairs_of_different_sizes_are_copied(copiers: CopyThreads, sizes: tuple[int, ...]) -> None:
    sources = [numbers(size, np.uint64) + number for number, size in enumerate(sizes)]
    targets = [np.zeros_like(source) for source in sources]
    copiers.copy(list(zip(targets, sources, strict=True)))
    for target, source in zip(targets, sources, strict=True):
        np.testing.assert_array_equal(target, source)


def test_few_long_rows_are_copied(copiers: CopyThreads) -> None:
    for rows in (1, 2, 3):
        source = numbers(LARGE, np.uint64, LARGE // 8 // rows)
        target = np.zeros_like(source)
        copiers.copy([(target, source)])
        np.testing.assert_array_equal(target, source)


def test_small_copies_start_no_thread() -> None:
    before = set(threading.enumerate())
    copiers, source = CopyThreads(8), np.arange(SMALLEST_SEGMENT // 8 * 2 - 1)
    target = np.zeros_like(source)
    copiers.copy([(target, source)])
    np.testing.assert_array_equal(target, source)
    assert set(threading.enumerate()) == before


def test_a_large_copy_is_shared_among_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    cut, numbers_of_parts = copy_threads._split_pairs, list[int]()

    def cutting(pairs: Any, nbytes: int, number: int) -> Any:
        numbers_of_parts.append(number)
        return cut(pairs, nbytes, number)

    monkeypatch.setattr(copy_threads, "_split_pairs", cutting)
    before = set(threading.enumerate())
    copiers, source = CopyThreads(4), numbers(LARGE, np.uint64)
    started = []
    for part in (source[: len(source) // 8], source):  # two parts and some more
        copiers.copy([(np.empty_like(part), part)])
        started.append(len(set(threading.enumerate()) - before))
    assert numbers_of_parts == [2, 8]
    assert started == [1, 3]
    copiers.close()
    assert set(threading.enumerate()) == before
    copiers.close()


def test_the_caller_does_not_wait_for_slow_helpers() -> None:
    copiers, source, asleep = CopyThreads(2), numbers(LARGE, np.uint64), threading.Event()
    copiers.hand_over(lambda: (asleep.wait(), None)[1])
    copiers.hand_over(lambda: (asleep.wait(), None)[1])
    target = np.zeros_like(source)
    copiers.copy([(target, source)])  # would not return if it waited for the sleeping helper
    np.testing.assert_array_equal(target, source)
    asleep.set()
    copiers.close()


def test_an_interrupted_copy_waits_for_helpers_and_drops_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copiers, source = CopyThreads(2), numbers(LARGE, np.uint64)
    target = np.zeros_like(source)

    begun, may_end = threading.Event(), threading.Event()

    def interrupted(_parts: copy_threads._SharedCopy) -> None:
        begun.wait()
        raise KeyboardInterrupt

    def helping(parts: copy_threads._SharedCopy) -> None:
        parts._busy.append(None)
        begun.set()
        may_end.wait()
        target[-1] = 7
        parts._busy.pop()
        parts._done.put(None)

    monkeypatch.setattr(copy_threads._SharedCopy, "help", helping)
    monkeypatch.setattr(copy_threads._SharedCopy, "copy", interrupted)
    threading.Timer(0.05, may_end.set).start()
    with pytest.raises(KeyboardInterrupt):
        copiers.copy([(target, source)])
    assert target[-1] == 7 and not target[:-1].any()
    monkeypatch.undo()
    copiers.copy([(target, source)])
    np.testing.assert_array_equal(target, source)
    copiers.close()


def test_an_error_in_any_part_is_raised_and_the_threads_survive(copiers: CopyThreads) -> None:
    good = numbers(LARGE, np.uint64, 4)
    target = np.zeros_like(good)
    unfit = np.zeros((LARGE // 64, 2), np.uint64)  # rows of two elements into rows of four
    half = LARGE // 64
    for pairs in (
        [(target[:half], good[:half]), (target[half:][: len(unfit)], unfit)],
        [(target[: len(unfit)], unfit), (target[half:], good[half:])],
        [(target[: len(unfit)], unfit)],
    ):
        with pytest.raises(ValueError, match="could not broadcast"):
            copiers.copy(pairs)
        copiers.copy([(target, good)])
        np.testing.assert_array_equal(target, good)
        target[...] = 0


def test_many_callers_share_the_copy_threads(copiers: CopyThreads) -> None:
    def work(number: int) -> None:
        source = numbers(LARGE // 2, np.uint64) + number
        for _ in range(5):
            target = np.zeros_like(source)
            copiers.copy([(target, source)])
            assert np.array_equal(target, source)

    in_threads(work)


def test_no_array_is_kept_alive_after_a_copy(copiers: CopyThreads) -> None:
    source = np.ones(LARGE, np.uint8)
    target = np.zeros_like(source)
    copiers.copy([(target, source)])
    alive = weakref.ref(source), weakref.ref(target)
    del source, target
    assert [array() for array in alive] == [None, None]


shapes = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 9), st.sampled_from([1, 2, 4, 8])), max_size=6
)


@given(shapes=shapes, parts=st.integers(1, 9))
def test_splitting_covers_every_row_once_in_few_parts(
    shapes: list[tuple[int, int, int]], parts: int
) -> None:
    pairs: list[Pair] = []
    for rows, columns, itemsize in shapes:
        target = np.zeros((rows, columns), f"u{itemsize}")
        pairs.append((target, np.ones_like(target)))
    nbytes = sum(target.nbytes for target, _ in pairs)
    lists = _split_pairs(pairs, nbytes, parts)
    assert 1 <= len(lists) <= parts
    for part in lists:
        for target, source in part:
            assert target.shape == source.shape
            target[...] += source
    for target, _ in pairs:
        assert (target == 1).all()
    rows_of = [max(target.nbytes // max(len(target), 1), 1) for target, _ in pairs]
    share, row = -(-nbytes // parts), max(rows_of, default=0)
    for part in lists[:-1]:
        assert sum(target.nbytes for target, _ in part) <= share + row
    assert all(part for part in lists[1:])


@given(rows=st.integers(1, 200), parts=st.integers(2, 9))
def test_copies_are_shared_from_two_parts_on(rows: int, parts: int) -> None:
    target = np.zeros((rows, 4), np.uint64)
    lists = _split_pairs([(target, target)], target.nbytes, parts)
    assert sum(1 for part in lists if part) >= min(rows, 2)
    assert len(lists) > 1  # helpers never come for a copy of one part
