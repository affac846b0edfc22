"""ResultMemoryPool memory by itself: found when nobody holds it, and never before."""

from __future__ import annotations

import gc
import random
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gpu_executor.result_memory import MAX_PROBES, ResultMemoryPool
from tests.support.jobs import Array
from tests.support.results import HOLDS, address
from tests.support.threads import THREADS, in_threads

NBYTES, CALLS = 4000, 400


def add_memory(recycled: ResultMemoryPool[str], belongs: str = "", nbytes: int = NBYTES) -> Array:
    """New memory, and what a result is: an array over it."""
    memory = np.zeros(nbytes, np.uint8)
    recycled.add(nbytes, memory, belongs)
    return np.ndarray(nbytes // 4, np.uint32, memory)


def find(recycled: ResultMemoryPool[str], nbytes: int = NBYTES) -> tuple[Any, str]:
    found = recycled.find(nbytes)
    assert found is not None
    return found


def test_nothing_is_found_where_nothing_was_added() -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    assert recycled.find(NBYTES) is None
    assert recycled.nbytes == 0


def test_memory_is_found_with_what_belongs_to_it_when_nobody_holds_it() -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    result = add_memory(recycled, "of the first")
    place = address(result)
    assert recycled.find(NBYTES) is None
    del result
    memory, belongs = find(recycled)
    assert (address(memory), belongs) == (place, "of the first")
    assert recycled.nbytes == NBYTES


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_memory_that_is_held_in_any_way_is_not_found(hold: Callable[[Any], Any]) -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    held = hold(add_memory(recycled))
    for _ in range(2 * MAX_PROBES):
        assert recycled.find(NBYTES) is None
    del held
    gc.collect()
    assert recycled.find(NBYTES) is not None


def test_memory_that_was_found_is_not_found_again_while_it_is_held() -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    for name in ("one", "other"):
        add_memory(recycled, name)
    first, second = find(recycled), find(recycled)
    assert {first[1], second[1]} == {"one", "other"}
    assert not np.shares_memory(first[0], second[0])
    assert recycled.find(NBYTES) is None
    view = first[0][10:][::2]
    dropped = first[1]
    del first
    assert recycled.find(NBYTES) is None
    del view
    assert find(recycled)[1] == dropped


def test_memory_is_found_by_its_own_size_alone() -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    for nbytes in (NBYTES, 2 * NBYTES):
        add_memory(recycled, str(nbytes), nbytes)
    assert recycled.nbytes == 3 * NBYTES
    assert find(recycled, 2 * NBYTES)[1] == str(2 * NBYTES)
    assert find(recycled, NBYTES)[1] == str(NBYTES)
    assert recycled.find(NBYTES + 4) is None


@pytest.mark.parametrize("free", [0, MAX_PROBES, 3 * MAX_PROBES - 1])
def test_what_is_free_is_found_among_many_that_are_held(free: int) -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    held = [add_memory(recycled, str(number)) for number in range(3 * MAX_PROBES)]
    del held[free]
    found = [each for each in (recycled.find(NBYTES) for _ in range(3)) if each is not None]
    assert [belongs for _, belongs in found] == [str(free)]
    assert len(held) == 3 * MAX_PROBES - 1


def test_clear_frees_what_nobody_holds_and_forgets_the_rest() -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    held, dropped = add_memory(recycled), add_memory(recycled)
    of_held, of_dropped = weakref.ref(held.base), weakref.ref(dropped.base)
    held[...] = 7
    del dropped
    assert of_dropped() is not None
    recycled.clear()
    assert of_dropped() is None
    assert recycled.nbytes == 0
    assert set(held.tolist()) == {7}
    del held
    assert of_held() is None
    assert recycled.find(NBYTES) is None
    add_memory(recycled, "after")
    assert find(recycled)[1] == "after"
    assert recycled.nbytes == NBYTES


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Threads take turns after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching_often")
def test_threads_that_find_and_add_never_share_memory() -> None:
    recycled: ResultMemoryPool[str] = ResultMemoryPool()
    lock = threading.Lock()
    live: set[int] = set()
    """Where the memory is that somebody holds."""

    def result(nbytes: int) -> Array:
        found = recycled.find(nbytes)
        if found is None:
            return add_memory(recycled, nbytes=nbytes)
        return np.ndarray(nbytes // 4, np.uint32, found[0])

    def work(number: int) -> None:
        draw, held = random.Random(number), list[Array]()
        for _ in range(CALLS):
            held.append(result(draw.choice([NBYTES, 2 * NBYTES])))
            held[-1][...] = number
            place = address(held[-1])
            with lock:
                assert place not in live
                live.add(place)
            assert all((each == number).all() for each in held)
            while len(held) > draw.randrange(3):
                oldest = held.pop(0)
                with lock:
                    live.remove(address(oldest))
                del oldest
        with lock:
            live.difference_update([address(each) for each in held])

    in_threads(work)
    assert live == set()
    assert recycled.nbytes < THREADS * CALLS * NBYTES // 8, "found again, not made each time"
