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

from gpu_executor.result_memory import MAX_PROBES, ResultMemoryPool
from tests.support.jobs import Array
from tests.support.results import HOLDS, address
from tests.support.threads import THREADS, in_threads

NBYTES, CALLS = 4000, 400


def add_memory(pool: ResultMemoryPool[str], belongs: str = "", nbytes: int = NBYTES) -> Array:
    """Add new memory; returns an array over it, as a result is."""
    memory = np.zeros(nbytes, np.uint8)
    pool.add(nbytes, memory, belongs)
    return np.ndarray(nbytes // 4, np.uint32, memory)


def find(pool: ResultMemoryPool[str], nbytes: int = NBYTES) -> tuple[Any, str]:
    found = pool.find(nbytes)
    assert found is not None
    return found


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
    assert pool.nbytes == NBYTES


@pytest.mark.parametrize("hold", HOLDS.values(), ids=HOLDS)
def test_memory_with_a_holder_of_any_kind_is_not_found(hold: Callable[[Any], Any]) -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held = hold(add_memory(pool))
    for _ in range(2 * MAX_PROBES):
        assert pool.find(NBYTES) is None
    del held
    gc.collect()
    assert pool.find(NBYTES) is not None


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


def test_memory_is_found_by_its_exact_size_only() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    for nbytes in (NBYTES, 2 * NBYTES):
        add_memory(pool, str(nbytes), nbytes)
    assert pool.nbytes == 3 * NBYTES
    assert find(pool, 2 * NBYTES)[1] == str(2 * NBYTES)
    assert find(pool, NBYTES)[1] == str(NBYTES)
    assert pool.find(NBYTES + 4) is None


@pytest.mark.parametrize("free", [0, MAX_PROBES, 3 * MAX_PROBES - 1])
def test_free_memory_is_found_among_much_that_is_held(free: int) -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held = [add_memory(pool, str(number)) for number in range(3 * MAX_PROBES)]
    del held[free]
    found = [each for each in (pool.find(NBYTES) for _ in range(3)) if each is not None]
    assert [belongs for _, belongs in found] == [str(free)]
    assert len(held) == 3 * MAX_PROBES - 1


def test_clear_frees_memory_without_a_holder_and_drops_the_rest() -> None:
    pool: ResultMemoryPool[str] = ResultMemoryPool()
    held, dropped = add_memory(pool), add_memory(pool)
    of_held, of_dropped = weakref.ref(held.base), weakref.ref(dropped.base)
    held[...] = 7
    del dropped
    assert of_dropped() is not None
    pool.clear()
    assert of_dropped() is None
    assert pool.nbytes == 0
    assert set(held.tolist()) == {7}
    del held
    assert of_held() is None
    assert pool.find(NBYTES) is None
    add_memory(pool, "after")
    assert find(pool)[1] == "after"
    assert pool.nbytes == NBYTES


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
