"""Caches of bounded size: which entries are evicted, and which stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.common.lru import LruCache, remember


def make_cache(count: int) -> LruCache[int, str]:
    cache: LruCache[int, str] = LruCache()
    for key in range(count):
        cache[key] = str(key)
    return cache


def test_the_least_recently_used_entries_are_evicted_first() -> None:
    cache = make_cache(5)
    assert cache.use(0) == "0"
    assert cache.use(2) == "2"
    assert list(cache) == [1, 3, 4, 0, 2]
    assert cache.evict(2) == ["1", "3", "4"]
    assert dict(cache) == {0: "0", 2: "2"}


@pytest.mark.parametrize("most", [3, 4])
def test_nothing_is_evicted_where_there_is_room(most: int) -> None:
    cache = make_cache(3)
    assert cache.evict(most) == []
    assert list(cache) == [0, 1, 2]


def test_a_look_up_that_does_not_use_leaves_the_order() -> None:
    cache = make_cache(3)
    assert (cache.get(0), cache[1], 2 in cache) == ("0", "1", True)
    assert list(cache) == [0, 1, 2]


def test_an_unknown_key_is_none_and_changes_nothing() -> None:
    cache = make_cache(2)
    assert cache.use(7) is None
    assert list(cache) == [0, 1]


@pytest.mark.parametrize("false", [0, False, "", ()])
def test_a_value_that_is_false_is_used_like_any_other(false: object) -> None:
    cache: LruCache[str, object] = LruCache(first=false, second=1)
    assert cache.use("first") is false
    assert list(cache) == ["second", "first"]


def test_entries_in_use_are_never_evicted() -> None:
    cache = make_cache(4)
    assert cache.evict(2, in_use=lambda value: value in {"0", "2"}) == ["1", "3"]
    cache[4] = "4"
    assert cache.evict(1, in_use=lambda value: True) == []
    assert list(cache) == [0, 2, 4]
    assert cache.evict(1, in_use=lambda value: value == "2") == ["0", "4"]
    assert list(cache) == [2]


@given(st.lists(st.integers(0, 9)), st.integers(1, 6))
def test_the_most_recently_used_entries_stay(keys: list[int], most: int) -> None:
    cache: LruCache[int, int] = LruCache()
    for key in keys:
        if cache.use(key) is None:
            cache[key] = key
            cache.evict(most)
    latest_first = list(dict.fromkeys(reversed(keys)))
    assert list(reversed(cache)) == latest_first[:most]


def test_remember_empties_a_full_dictionary() -> None:
    known: dict[int, int] = {}
    for key in range(5):
        remember(known, key, -key, 3)
    assert known == {3: -3, 4: -4}
