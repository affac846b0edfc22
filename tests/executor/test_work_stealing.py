"""Dealing by itself: every unit once, in proportion to the rates, and stolen from who has most."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.executor.work_stealing import DeviceRates, WorkSplit, compute_shares
from tests.support.executors import ADD, FQ_ADD

many_rates = st.lists(st.floats(0.0, 1e12), min_size=1, max_size=6)


def work_through(deal: WorkSplit, parts: list[float], draw: random.Random) -> list[list[int]]:
    """What each device gets when they come in any order."""
    taken: list[list[int]] = [[] for _ in parts]
    while deal.remaining:
        who = draw.choice([who for who, part in enumerate(parts) if part])
        taken[who] += deal.take(who, parts)
    return taken


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ([5.0], [1.0]),
        ([1.0, 3.0], [0.25, 0.75]),
        ([1.0, 0.0, 3.0], [0.25, 0.0, 0.75]),
        ([None, None], [0.5, 0.5]),
        ([1.0, None, 3.0], [1 / 6, 2 / 6, 3 / 6]),
        ([0.0, None], [0.0, 1.0]),
        ([0.0, 0.0], [0.5, 0.5]),
    ],
)
def test_shares_follow_the_rates(rates: list[float | None], expected: list[float]) -> None:
    assert compute_shares(rates) == pytest.approx(expected)


@given(many_rates, st.integers(0, 1000), st.integers(0, 1000))
def test_every_unit_is_taken_once(rates: list[float], units: int, seed: int) -> None:
    parts = compute_shares(list(rates))
    taken = work_through(WorkSplit(units, parts), parts, random.Random(seed))
    assert sorted(unit for own in taken for unit in own) == list(range(units))


@given(many_rates, st.integers(1, 100_000))
def test_runs_are_neighbours_in_proportion(rates: list[float], units: int) -> None:
    parts = compute_shares(list(rates))
    deal, end = WorkSplit(units, parts), 0
    for who, part in enumerate(parts):
        own: list[int] = []
        while len(own) < round(part * units) - 1:
            own += deal.take(who, parts)
        assert own == list(range(end, end + len(own)))
        end = round(sum(parts[: who + 1]) * units)
        while own and own[-1] + 1 < end:
            own += deal.take(who, parts)
        end = own[-1] + 1 if own else end


def test_half_of_a_run_is_taken_at_a_time() -> None:
    deal = WorkSplit(16, [0.5, 0.5])
    assert [deal.take(0, [0.5, 0.5]) for _ in range(4)] == [
        range(0, 4), range(4, 6), range(6, 7), range(7, 8),
    ]  # fmt: skip


def test_who_is_done_steals_from_the_end_of_the_longest_run() -> None:
    parts = [1 / 3] * 3
    deal = WorkSplit(30, parts)
    for _ in range(4):
        deal.take(0, parts)
    deal.take(1, parts)
    assert deal.take(0, parts) == range(25, 28), "5 to 9 of the third run are halved again"


def test_a_slow_thief_leaves_the_last_units_to_a_fast_device() -> None:
    parts = [0.9, 0.1]
    deal = WorkSplit(10, parts)
    assert deal.take(1, parts) == range(9, 10)
    deal.take(0, parts)
    assert deal.remaining == 4
    assert not deal.take(1, parts), "one unit would take it longer than the other four"
    assert deal.take(1, [0.5, 0.5]), "were they equally fast, it would take some"
    assert deal.take(1, [0.0, 1.0]), "and all, when the other has failed"


def test_rates_are_those_of_the_kernel_and_of_late() -> None:
    rates = DeviceRates([None, None])
    assert rates.compute_shares(ADD) == [0.5, 0.5]
    for _ in range(20):
        rates.record(0, ADD, 1, 10 << 20, 1.0)
        rates.record(1, ADD, 1, 30 << 20, 1.0)
    assert rates.compute_shares(ADD) == pytest.approx([0.25, 0.75], abs=0.01)
    assert rates.compute_shares(FQ_ADD) == rates.compute_shares(ADD), "until it was run itself"
    for _ in range(20):
        rates.record(0, ADD, 1, 30 << 20, 1.0)
    assert rates.compute_shares(ADD) == pytest.approx([0.5, 0.5], abs=0.01)


def test_rates_begin_with_the_calibration() -> None:
    rates = DeviceRates([1e9, 3e9])
    assert rates.compute_shares(ADD) == [0.25, 0.75]
    rates.record(0, ADD, 1, 1000, 0.1)
    assert rates.compute_shares(ADD) == [0.25, 0.75], "one measured device alone says nothing"
    assert DeviceRates([1e9, None]).compute_shares(ADD) == [0.5, 0.5]


def test_who_gets_little_does_not_look_slow_for_it() -> None:
    rates = DeviceRates([None, None])
    per_turn, per_byte = 100e-6, 1e-9
    for _ in range(20):
        for who, nbytes in enumerate((40_000, 400)):
            rates.record(who, ADD, 1, nbytes, per_turn + nbytes * per_byte)
    assert rates.compute_shares(ADD)[1] > 0.4


def test_a_device_that_failed_has_no_share() -> None:
    rates = DeviceRates([None, None, None])
    rates.quarantine(1)
    assert (rates.compute_shares(ADD), rates.usable) == ([0.5, 0.0, 0.5], 2)
