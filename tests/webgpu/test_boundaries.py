"""Bucket boundaries: powers of two, or adaptive ones that follow the load."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor import webgpu
from gpu_executor.webgpu.boundaries import (
    MAX_BOUNDARIES,
    MAX_PADDING,
    MIN_SIZES,
    SMALLEST_BUCKET,
    BucketBoundaries,
    size_bucket,
)
from tests.support.threads import in_threads

POWERS = [1 << exponent for exponent in range(14, 31)]


def test_size_bucket_is_importable_from_the_package() -> None:
    assert webgpu.size_bucket is size_bucket


def draw_skewed_sizes(seed: int, count: int) -> list[int]:
    """Draw sizes that fill little more than half of a bucket of 131,072 elements."""
    draw = random.Random(seed)
    return [draw.randrange(70_000, 80_001) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 100, 16_383, 16_384])
def test_small_sizes_share_the_smallest_bucket(count: int) -> None:
    assert size_bucket(count) == 16_384


@pytest.mark.parametrize("power", POWERS)
def test_a_power_of_two_is_its_own_bucket_and_one_more_is_in_the_next(power: int) -> None:
    assert size_bucket(power - 1) == size_bucket(power) == power
    assert size_bucket(power + 1) == 2 * power


@given(st.integers(0, 1 << 40))
def test_a_bucket_is_the_least_power_of_two_that_holds_its_size(count: int) -> None:
    bucket = size_bucket(count)
    assert bucket >= max(count, SMALLEST_BUCKET)
    assert bucket & (bucket - 1) == 0
    if count > SMALLEST_BUCKET:
        assert bucket < 2 * count


@given(st.lists(st.integers(0, 1 << 24), max_size=200))
def test_fixed_boundaries_never_change(counts: list[int]) -> None:
    boundaries = BucketBoundaries()
    for count in [*counts, *draw_skewed_sizes(1, 50)]:
        assert boundaries.find_bucket(count) == size_bucket(count)
    assert (boundaries.changes, boundaries.learned, boundaries.measure_padding()) == (0, [], 0.0)


def test_a_skewed_load_adds_a_boundary() -> None:
    boundaries = BucketBoundaries(adaptive=True)
    sizes = draw_skewed_sizes(2, 400)
    room = sum(size_bucket(size) for size in sizes)
    assert 1 - sum(sizes) / room > 0.4
    buckets = [boundaries.find_bucket(size) for size in sizes]
    assert boundaries.changes >= 1
    assert boundaries.learned
    assert all(70_000 <= boundary < 131_072 for boundary in boundaries.learned)
    assert boundaries.measure_padding() < MAX_PADDING
    late = sizes[100:], buckets[100:]
    assert 1 - sum(late[0]) / sum(late[1]) < MAX_PADDING


def test_a_boundary_is_added_only_after_enough_sizes() -> None:
    boundaries = BucketBoundaries(adaptive=True)
    sizes = draw_skewed_sizes(3, MIN_SIZES)
    for size in sizes[:-1]:
        assert boundaries.find_bucket(size) == 131_072
    assert boundaries.changes == 0
    assert boundaries.find_bucket(min(sizes)) < 131_072
    assert boundaries.changes == 1


def test_sizes_that_fill_their_buckets_add_no_boundary() -> None:
    boundaries = BucketBoundaries(adaptive=True)
    draw = random.Random(4)
    for _ in range(1000):
        power = draw.choice(POWERS[1:8])
        size = draw.randrange(power * 7 // 8, power + 1)
        assert boundaries.find_bucket(size) == power
    assert (boundaries.changes, boundaries.learned) == (0, [])
    assert 0 < boundaries.measure_padding() < MAX_PADDING


@pytest.mark.parametrize("seed", range(8))
def test_evenly_spread_sizes_divide_a_bucket_once_near_its_middle(seed: int) -> None:
    boundaries = BucketBoundaries(adaptive=True)
    evenly = [*range(65_600, 131_073, 512)] * 8
    random.Random(seed).shuffle(evenly)
    for size in evenly[:16]:  # large sizes first, so that a few small ones do not decide
        boundaries.find_bucket(131_072 - size // 16)
    for size in evenly:
        boundaries.find_bucket(size)
    assert boundaries.changes == 1
    (boundary,) = boundaries.learned
    assert 81_920 <= boundary <= 106_496
    assert boundaries.measure_padding() < MAX_PADDING


def test_the_smallest_bucket_is_never_divided() -> None:
    boundaries = BucketBoundaries(adaptive=True)
    for size in [0, 1, 7, 100, 9000] * 100:
        assert boundaries.find_bucket(size) == SMALLEST_BUCKET
    assert boundaries.changes == 0


@settings(max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.integers(0, 1 << 22), st.integers(66_000, 70_000), st.integers(17_000, 20_000)
        ),
        min_size=50,
        max_size=400,
    )
)
def test_every_bucket_holds_its_sizes(counts: list[int]) -> None:
    boundaries = BucketBoundaries(adaptive=True)
    for count in counts:
        bucket = boundaries.find_bucket(count)
        assert max(count, SMALLEST_BUCKET) <= bucket <= size_bucket(count)
        assert len(boundaries.learned) <= MAX_BOUNDARIES
    assert all(boundary > SMALLEST_BUCKET for boundary in boundaries.learned)
    assert boundaries.learned == sorted(set(boundaries.learned))
    assert 0 <= boundaries.measure_padding() <= 1


def test_the_number_of_learned_boundaries_is_limited() -> None:
    boundaries = BucketBoundaries(adaptive=True)
    for exponent in range(15, 60):
        for size in [(1 << exponent) * 17 // 16] * 2 * MIN_SIZES:
            assert size <= boundaries.find_bucket(size) <= size_bucket(size)
        assert len(boundaries.learned) <= MAX_BOUNDARIES
    assert boundaries.changes > MAX_BOUNDARIES


def test_saved_boundaries_are_used_from_the_first_size() -> None:
    first = BucketBoundaries(adaptive=True)
    for size in draw_skewed_sizes(6, 200):
        first.find_bucket(size)
    again = BucketBoundaries(adaptive=True, learned=first.learned)
    assert again.learned == first.learned
    assert again.changes == 0
    for size in draw_skewed_sizes(7, 200):
        assert size <= again.find_bucket(size) < 131_072
    assert again.measure_padding() < MAX_PADDING


def test_saved_boundaries_are_sorted_and_unique() -> None:
    boundaries = BucketBoundaries(adaptive=True, learned=[90_112, 73_728, 90_112])
    assert boundaries.learned == [73_728, 90_112]
    assert [boundaries.find_bucket(size) for size in (66_000, 73_728, 73_729, 90_113)] == [
        73_728, 73_728, 90_112, 131_072,
    ]  # fmt: skip


def test_learned_returns_a_copy() -> None:
    boundaries = BucketBoundaries(adaptive=True, learned=[73_728])
    boundaries.learned.clear()
    assert boundaries.learned == [73_728]


def test_many_threads_add_boundaries_at_once() -> None:
    boundaries = BucketBoundaries(adaptive=True)

    def work(number: int) -> None:
        draw = random.Random(number)
        for _ in range(500):
            size = draw.choice([1, 17_000, 37_000]) * draw.randrange(1, 1 << number % 4 + 1)
            assert size <= boundaries.find_bucket(size) <= size_bucket(size)
            assert 0 <= boundaries.measure_padding() <= 1

    in_threads(work)
    assert boundaries.learned == sorted(set(boundaries.learned))
    assert len(boundaries.learned) <= MAX_BOUNDARIES
