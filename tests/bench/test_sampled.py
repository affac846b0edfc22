"""Figures that keep their samples: arithmetic converts the samples or leaves them behind."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from gpu_executor.bench.sampled import Sampled
from gpu_executor.bench.timing import compute_medians, time_function


def test_a_median_keeps_its_samples_through_changes_of_unit() -> None:
    seconds = Sampled.median([0.004, 0.001, 0.002])
    assert seconds == 0.002
    milliseconds, rate = 1e3 * seconds * 2 / 2, 10 / seconds
    assert isinstance(milliseconds, Sampled) and isinstance(rate, Sampled)
    assert milliseconds == pytest.approx(2) and rate == 5_000.0
    assert milliseconds.samples == pytest.approx((4, 1, 2))
    assert rate.samples == (2_500, 10_000, 5_000)


def test_two_figures_with_samples_give_a_plain_number() -> None:
    a, b = Sampled.median([1, 2, 3]), Sampled.fastest([4, 8])
    assert b == 4.0
    for value in (a * b, a + b, a - 1):
        assert type(value) is float


def test_a_time_of_zero_has_no_rate() -> None:
    rate = 6 / Sampled.median([0.0, 2.0, 3.0])
    assert isinstance(rate, Sampled) and rate == 3.0
    assert rate.samples == (3, 2)


def test_copies_and_json_keep_the_number() -> None:
    value = Sampled.median([1.5, 2.5, 9])
    assert json.dumps(value) == "2.5"
    for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other == value and other.samples == value.samples


def test_timing_returns_every_sample() -> None:
    assert len(time_function(lambda: None, max_calls=7).samples) == 7
    assert [each.samples for each in compute_medians([[1, 5], [2, 6], [9, 7]])] == [
        (1, 2, 9),
        (5, 6, 7),
    ]


@pytest.mark.parametrize(("warm_up", "calls"), [(True, 4), (False, 3)])
def test_a_call_that_the_caller_made_replaces_the_untimed_one(warm_up: bool, calls: int) -> None:
    made: list[None] = []
    taken = time_function(lambda: made.append(None), max_calls=3, warm_up=warm_up)
    assert (len(made), len(taken.samples)) == (calls, 3)
