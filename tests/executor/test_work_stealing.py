"""Work stealing without devices: every unit is taken once, in proportion to the rates."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_executor.executor.work_stealing import DeviceRates, WorkSplit, compute_shares
from tests.support.executors import ADD, FQ_ADD

many_rates = st.lists(st.floats(0.0, 1e12), min_size=1, max_size=6)


def work_through(split: WorkSplit, shares: list[float], draw: random.Random) -> list[list[int]]:
    """The units that each device takes when devices take units in random order."""
    taken: list[list[int]] = [[] for _ in shares]
    while split.remaining:
        device_index = draw.choice(
            [device_index for device_index, share in enumerate(shares) if share]
        )
        taken[device_index] += split.take(device_index, shares)
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
    shares = compute_shares(list(rates))
    taken = work_through(WorkSplit(units, shares), shares, random.Random(seed))
    assert sorted(unit for own in taken for unit in own) == list(range(units))


@given(many_rates, st.integers(1, 100_000))
def test_initial_ranges_are_contiguous_and_in_proportion(rates: list[float], units: int) -> None:
    shares = compute_shares(list(rates))
    split, end = WorkSplit(units, shares), 0
    for device_index, share in enumerate(shares):
        own: list[int] = []
        while len(own) < round(share * units) - 1:
            own += split.take(device_index, shares)
        assert own == list(range(end, end + len(own)))
        end = round(sum(shares[: device_index + 1]) * units)
        while own and own[-1] + 1 < end:
            own += split.take(device_index, shares)
        end = own[-1] + 1 if own else end


def test_a_device_takes_half_of_its_range_at_a_time() -> None:
    split = WorkSplit(16, [0.5, 0.5])
    assert [split.take(0, [0.5, 0.5]) for _ in range(4)] == [
        range(0, 4), range(4, 6), range(6, 7), range(7, 8),
    ]  # fmt: skip


def test_an_idle_device_steals_from_the_end_of_the_longest_range() -> None:
    shares = [1 / 3] * 3
    split = WorkSplit(30, shares)
    for _ in range(4):
        split.take(0, shares)
    split.take(1, shares)
    assert split.take(0, shares) == range(25, 28), (
        "the stolen half of the third range is halved again"
    )


def test_a_slow_device_does_not_steal_the_last_units_of_a_fast_one() -> None:
    shares = [0.9, 0.1]
    split = WorkSplit(10, shares)
    assert split.take(1, shares) == range(9, 10)
    split.take(0, shares)
    assert split.remaining == 4
    assert not split.take(1, shares), (
        "one unit would take longer here than four on the other device"
    )
    assert split.take(1, [0.5, 0.5]), "an equally fast device steals some"
    assert split.take(1, [0.0, 1.0]), "if the other device has failed, it steals all"


def test_rates_are_measured_by_kernel_and_decay() -> None:
    rates = DeviceRates([None, None])
    assert rates.compute_shares(ADD) == [0.5, 0.5]
    for _ in range(20):
        rates.record(0, ADD, 1, 10 << 20, 1.0)
        rates.record(1, ADD, 1, 30 << 20, 1.0)
    assert rates.compute_shares(ADD) == pytest.approx([0.25, 0.75], abs=0.01)
    assert rates.compute_shares(FQ_ADD) == rates.compute_shares(ADD), (
        "a kernel that has not run uses the rates of all kernels"
    )
    for _ in range(20):
        rates.record(0, ADD, 1, 30 << 20, 1.0)
    assert rates.compute_shares(ADD) == pytest.approx([0.5, 0.5], abs=0.01)


def test_initial_rates_come_from_the_calibration() -> None:
    rates = DeviceRates([1e9, 3e9])
    assert rates.compute_shares(ADD) == [0.25, 0.75]
    rates.record(0, ADD, 1, 1000, 0.1)
    assert rates.compute_shares(ADD) == [0.25, 0.75], "a measurement of one device is not enough"
    assert DeviceRates([1e9, None]).compute_shares(ADD) == [0.5, 0.5]


def test_small_batches_do_not_lower_the_rate() -> None:
    rates = DeviceRates([None, None])
    per_turn, per_byte = 100e-6, 1e-9
    for _ in range(20):
        for device_index, nbytes in enumerate((40_000, 400)):
            rates.record(device_index, ADD, 1, nbytes, per_turn + nbytes * per_byte)
    assert rates.compute_shares(ADD)[1] > 0.4


def test_a_quarantined_device_has_no_share() -> None:
    rates = DeviceRates([None, None, None])
    rates.quarantine(1)
    assert (rates.compute_shares(ADD), rates.usable) == ([0.5, 0.0, 0.5], 2)
