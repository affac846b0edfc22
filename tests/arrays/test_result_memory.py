"""ResultMemoryPool: memory is found when it has no holder, and never before."""

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

from gpu_executor.arrays.result_memory import MAX_PROBES, ResultMemory, ResultMemoryPool
from gpu_executor.plan import round_up_to_class
from tests.support.jobs import Array
from tests.support.results import HOLDS, address
from tests.support.threads import THREADS, in_threads

NBYTES, CALLS = 4000, 400


def add_memory(pool: ResultMemoryPool[str], belongs: str = "", nbytes: int = NBYTES) -> Array:
    """Add new memory; returns an array over it, as a result is."""
    memory = np.zeros(round_up_to_class(nbytes), np.uint8)
    pool.add(nbytes, memory, belongs)
    return np.ndarray(nbytes // 4, np.uint32, memory)


def find(pool: ResultMemoryPool[str], nbytes: int = NBYTES) -> tuple[Any, str]:
    found = pool.find(nbytes)
    assert found is not None
    return found


def list_by_use(pool: ResultMemoryPool[str]) -> list[ResultMemory[str]]:
    """The entries, the least recently used first."""
    return sorted(pool.list_entries(), key=lambda entry: entry.last_used)


def test_an_empty_pool_finds_nothing() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    assert pool.find(NBYTES) is None
    assert pool.nbytes == 0


def test_memory_without_a_holder_is_found_with_its_object() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    result = add_memory(pool, "of the first")
    place = address(result)
    assert pool.find(NBYTES) is None
    del result
    memory, belongs = find(pool)
    assert (address(memory), belongs) == (place, "of the first")
    assert pool.nbytes == len(memory) == 4096


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_memory_with_a_holder_of_any_kind_is_not_found(hold: Callable[[Any], Any]) -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held = hold(add_memory(pool))
    for _ in range(2 * MAX_PROBES):
        assert pool.find(NBYTES) is None
    del held
    found = pool.find(NBYTES)
    if found is None:  # the holder is part of a reference cycle
        gc.collect()
        found = pool.find(NBYTES)
    assert found is not None


def test_found_memory_is_not_found_again_while_it_is_held() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    for name in ("one", "other"):
        add_memory(pool, name)
    first, second = find(pool), find(pool)
    assert {first[1], second[1]} == {"one", "other"}
    assert not np.shares_memory(first[0], second[0])
    assert pool.find(NBYTES) is None
    view = first[0][10:][::2]
    dropped = first[1]
    del first
    assert pool.find(NBYTES) is None
    del view
    assert find(pool)[1] == dropped


def test_memory_is_found_for_every_size_of_its_class_and_for_no_other() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    for nbytes in (NBYTES, 2 * NBYTES):
        add_memory(pool, str(nbytes), nbytes)
    assert pool.nbytes == 3 * 4096
    assert pool.find(3584) is None and pool.find(4097) is None and pool.find(8193) is None
    for nbytes, belongs in [(3585, NBYTES), (4096, NBYTES), (7169, 2 * NBYTES), (8192, 2 * NBYTES)]:
        memory, found = find(pool, nbytes)
        assert found == str(belongs)
        assert len(memory) >= nbytes
        del memory


def test_a_removed_entry_is_freed_and_one_with_a_holder_is_not() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    for name in ("one", "other"):
        add_memory(pool, name)
    entries = pool.list_entries()
    assert sorted(entry.belongs for entry in entries) == ["one", "other"]
    assert pool.count_unused_bytes() == pool.nbytes == 2 * 4096
    held, name = find(pool)
    assert (pool.count_unused_bytes(), pool.nbytes) == (4096, 2 * 4096)
    gone = [weakref.ref(entry.memory) for entry in entries]
    has_holder = [entry.belongs == name for entry in entries]
    assert [pool.remove(entry) for entry in entries] == has_holder
    assert [each() is not None for each in gone] == has_holder
    assert (pool.nbytes, pool.list_entries()) == (0, [])
    assert not any(pool.remove(entry) for entry in entries)
    del held
    assert all(each() is None for each in gone)


def test_the_older_half_of_held_memory_is_removed_at_once() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held = [add_memory(pool, str(number)) for number in range(9)]
    add_memory(pool, "dropped")
    assert pool.remove_held() == ["0", "1", "2", "3"]
    assert [entry.belongs for entry in list_by_use(pool)] == ["4", "5", "6", "7", "8", "dropped"]
    assert pool.remove_held() == ["4", "5"]
    assert pool.nbytes == 4 * 4096
    assert len(held) == 9


def test_entries_remember_when_they_were_used_last() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    for name in ("one", "other"):
        add_memory(pool, name)
    assert [entry.belongs for entry in list_by_use(pool)] == ["one", "other"]
    assert find(pool)[1] == "one"
    assert [entry.belongs for entry in list_by_use(pool)] == ["other", "one"]


@pytest.mark.parametrize("free", [0, MAX_PROBES, 3 * MAX_PROBES - 1])
def test_free_memory_is_found_among_much_that_is_held(free: int) -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held = [add_memory(pool, str(number)) for number in range(3 * MAX_PROBES)]
    del held[free]
    found = [each for each in (pool.find(NBYTES) for _ in range(3)) if each is not None]
    assert [belongs for _, belongs in found] == [str(free)]
    assert len(held) == 3 * MAX_PROBES - 1


def test_removing_all_entries_leaves_memory_that_is_held() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held, dropped = add_memory(pool), add_memory(pool)
    of_held, of_dropped = weakref.ref(held.base), weakref.ref(dropped.base)
    held[...] = 7
    del dropped
    assert of_dropped() is not None
    assert [pool.remove(entry) for entry in pool.list_entries()] == [True, False]
    assert of_dropped() is None
    assert pool.nbytes == 0
    assert set(held.tolist()) == {7}
    del held
    assert of_held() is None
    assert pool.find(NBYTES) is None
    add_memory(pool, "after")
    assert find(pool)[1] == "after"
    assert pool.nbytes == 4096


@pytest.fixture
def frequent_thread_switches() -> Iterator[None]:
    """The interpreter switches threads after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("frequent_thread_switches")
def test_threads_that_find_and_add_never_share_memory() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    lock = threading.Lock()
    live: set[int] = set()
    """Addresses of memory that has a holder."""

    def result(nbytes: int) -> Array:
        found = pool.find(nbytes)
        if found is None:
            return add_memory(pool, nbytes=nbytes)
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
    assert pool.nbytes < THREADS * CALLS * NBYTES // 8, "most results must be in recycled memory"
