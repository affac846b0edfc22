"""Plans by a device's calibration: forecasts, and the choices that follow from them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, get_args

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpu_executor.device_info import DeviceInfo
from gpu_executor.plan import (
    MAX_SLOTS,
    CallPlan,
    DataPath,
    QueueUse,
    Request,
    RunOptions,
    make_plan,
)
from gpu_executor.plan.calibration import LARGEST, SMALLEST, Calibration
from gpu_executor.plan.forecast import PipelinePace, Schedule, Work, forecast
from gpu_executor.settings import Settings
from tests.support.calibrations import (
    H200,
    H200_DIRECT,
    LAVAPIPE,
    MAYBE_TIMES,
    RATES,
    TIMES,
    random_calibrations,
)
from tests.support.plans import (
    ADD,
    ELEMENT,
    UNLIMITED,
    WITH_TRANSFER_QUEUES,
    add_operands,
    describe_device,
    find_reason,
)

ROOMY = describe_device(storage=UNLIMITED, groups=UNLIMITED, memory=UNLIMITED)
UNSPECIFIED = RunOptions()
any_calibration = st.sampled_from([H200, H200_DIRECT, LAVAPIPE]) | random_calibrations()
any_options = st.one_of(
    st.builds(
        RunOptions, st.none() | st.booleans(), st.none(), st.none() | st.integers(1, MAX_SLOTS)
    ),
    st.builds(RunOptions, st.none() | st.booleans(), st.just(True), st.none() | st.integers(2, 16)),
    st.builds(RunOptions, st.none() | st.booleans(), st.just(False), st.none() | st.just(1)),
)

extremes = st.sampled_from([SMALLEST, 1e-9, 1.0, 1e9, LARGEST])
"""What a file may hold that somebody has forged."""


def plan(
    count: int,
    jobs: int = 1,
    calibration: Calibration = H200,
    on: DeviceInfo = WITH_TRANSFER_QUEUES,
    *,
    mapped: bool = False,
    options: RunOptions = UNSPECIFIED,
    **settings: Any,
) -> CallPlan:
    """The plan for field additions. `mapped`: the host copies neither inputs nor results."""
    operands = add_operands(count)
    request = Request(ADD, operands, count, jobs, options, in_place=mapped, recycled=mapped)
    return make_plan(request, on, Settings(**settings), calibration)


@given(
    times_and_rates=st.fixed_dictionaries(dict.fromkeys([*RATES, *TIMES, *MAYBE_TIMES], extremes)),
    threads=st.lists(extremes, min_size=1, max_size=4),
    count=st.sampled_from([1, 1000, 1 << 26]),
    jobs=st.sampled_from([1, 100]),
    options=any_options,
)
def test_every_calibration_that_is_read_gives_a_plan(
    times_and_rates: dict[str, Any],
    threads: list[float],
    count: int,
    jobs: int,
    options: RunOptions,
) -> None:
    pairs = tuple((1 << at, rate) for at, rate in enumerate(threads))
    calibration = dataclasses.replace(H200, host_copy=pairs, **times_and_rates)
    made = plan(count, jobs, Calibration.from_json(calibration.to_json()), options=options)
    assert 1 <= made.chunk <= count
    assert 1 <= made.slots <= MAX_SLOTS


def forecast_seconds(
    calibration: Calibration,
    work: Work,
    chunks: int,
    slots: int | None,
    schedule: tuple[DataPath, QueueUse],
) -> float:
    return forecast(calibration, work, chunks, Schedule(*schedule, chunks, slots))[0]


MAPPED: tuple[DataPath, QueueUse] = ("host-visible", "one")
STAGED: tuple[DataPath, QueueUse] = ("device-local", "one")
SPLIT: tuple[DataPath, QueueUse] = ("device-local", "split")


def test_chunks_in_one_slot_take_the_sum_of_their_steps() -> None:
    little = Work(9600, 4800, 9600, 4800)
    copies = 14_400 / 9.8e9
    mapped = copies + 20.7e-6 + 14_400 / 21.9e9
    staged = copies + 35e-6 + 9600 / 45.7e9 + 14_400 / 3e12 + 4800 / 43.6e9
    for chunks in (1, 7):
        assert forecast_seconds(H200, little, chunks, 1, MAPPED) == pytest.approx(chunks * mapped)
        assert forecast_seconds(H200, little, chunks, 1, STAGED) == pytest.approx(chunks * staged)
    much = Work(8e6, 4e6, 8e6, 4e6)
    shared = 2 * 40e-6 + 12e6 / 34e9
    moved = 12e6 / 3e12 + 4e6 / 43.6e9  # the copy in takes less than the fill, and overlaps it
    assert forecast_seconds(H200, much, 1, 1, STAGED) == pytest.approx(shared + 35e-6 + moved)


def test_overlapped_chunks_are_as_fast_as_the_slowest_step() -> None:
    # The host copies nothing: the bus takes longest, with both directions at once.
    bus = Work(64e6, 32e6, 0, 0)
    through = 23.4e-6 + 64e6 / 45.7e9 + 96e6 / 3e12 + 32e6 / 43.6e9
    assert forecast_seconds(H200, bus, 101, None, SPLIT) == pytest.approx(
        through + 100 * 96e6 / 52.2e9
    )
    # Few bytes: the calling thread takes longest.
    few = Work(96, 48, 96, 48)
    expected = 101 * (15.9e-6 + 144 / 9.8e9) + 144 / 21.9e9
    assert forecast_seconds(H200, few, 101, None, MAPPED) == pytest.approx(expected)
    # A host that copies slowly: the copy threads take longest, for the first chunks too.
    slow, plain = dataclasses.replace(H200, chunks_copy=5e9), Work(64e6, 32e6, 64e6, 32e6)
    assert forecast_seconds(slow, plain, 1001, None, SPLIT) == pytest.approx(
        1001 * 96e6 / 5e9, rel=0.01
    )


def test_chunks_that_all_have_a_slot_are_copied_at_once_then_follow_each_other() -> None:
    work, kernel = Work(16e6, 8e6, 16e6, 0), 24e6 / 3e12
    back = 8e6 / 43.6e9
    # Two threads copy as fast as each can alone, four share the rate of all.
    for chunks, copied in ((2, 16e6 / 14.5e9), (4, 4 * 16e6 / 29.2e9)):
        expected = copied + 20e-6 + 24.1e-6 + chunks * (kernel + back)
        assert forecast_seconds(H200_DIRECT, work, chunks, None, STAGED) == pytest.approx(expected)
    # With one slot fewer, the last chunk waits until another has left its slot.
    assert forecast_seconds(H200_DIRECT, work, 4, 3, STAGED) > 1.1 * expected


def test_too_few_slots_make_every_step_wait() -> None:
    work = Work(64e6, 32e6, 64e6, 32e6)
    by_slots = {
        slots: forecast_seconds(H200, work, 100, slots, SPLIT) for slots in range(2, MAX_SLOTS + 1)
    }
    chosen, slots = forecast(H200, work, 100, Schedule(*SPLIT, 100, None))
    assert 2 < slots < MAX_SLOTS
    assert chosen == by_slots[slots] < 1.1 * min(by_slots.values())
    assert by_slots[2] > 2 * chosen


@given(interval=st.floats(1e-9, 1), ratio=st.floats(1, 40), chunks=st.integers(2, 1000))
def test_slots_keep_the_slowest_step_busy_with_at_most_two_to_spare(
    interval: float, ratio: float, chunks: int
) -> None:
    pace = PipelinePace(interval * ratio, interval)
    assert ratio <= pace.slots <= ratio + 2
    best = pace.latency + (chunks - 1) * pace.interval
    assert pace.seconds(chunks, pace.slots) == best
    if pace.slots > 2:
        assert pace.seconds(chunks, pace.slots - 2) > best


@given(
    calibration=any_calibration,
    name=st.sampled_from([*RATES, *TIMES, *MAYBE_TIMES, "host_copy"]),
    slower=st.floats(1, 1000),
    sizes=st.tuples(*[st.floats(1, 1e9)] * 2),
    copied=st.tuples(*[st.booleans()] * 2),
    chunks=st.integers(1, 1000),
    slots=st.none() | st.integers(1, MAX_SLOTS),
    queues=st.sampled_from(get_args(QueueUse)),
    path=st.sampled_from(get_args(DataPath)),
)
def test_a_slower_device_or_host_makes_no_forecast_shorter(
    calibration: Calibration,
    name: str,
    slower: float,
    sizes: tuple[float, float],
    copied: tuple[bool, bool],
    chunks: int,
    slots: int | None,
    queues: QueueUse,
    path: DataPath,
) -> None:
    if path == "host-visible":
        queues = "one"
    assume(queues == "one" or getattr(calibration, f"chunk_{queues}") is not None)
    value: Any = getattr(calibration, name)
    assume(value is not None)
    if name == "host_copy":
        value = tuple((threads, rate / slower) for threads, rate in value)
    else:
        value = value / slower if name in RATES else value * slower
    changes: dict[str, Any] = {name: value}
    slow = dataclasses.replace(calibration, **changes)
    work = Work(*sizes, sizes[0] * copied[0], sizes[1] * copied[1])
    before, now = (
        forecast_seconds(each, work, chunks, slots, (path, queues)) for each in (calibration, slow)
    )
    # Where the plan chooses the slots, it may choose fewer, which are filled sooner at first.
    fewer = (
        2 * (work.fill_bytes + work.drain_bytes) / calibration.chunks_copy if slots is None else 0
    )
    assert 0 < before <= now * (1 + 1e-9) + fewer


@given(
    calibration=any_calibration,
    count=st.integers(1, 1 << 33) | st.integers(1, 5),
    jobs=st.integers(1, 1000),
    options=any_options,
    mapped=st.booleans(),
    chunk=st.none() | st.integers(1, 1 << 22),
    device_local=st.none() | st.booleans(),
    unified=st.booleans(),
)
def test_every_choice_is_within_bounds_and_as_requested(
    calibration: Calibration,
    count: int,
    jobs: int,
    options: RunOptions,
    mapped: bool,
    chunk: int | None,
    device_local: bool | None,
    unified: bool,
) -> None:
    on = describe_device(storage=UNLIMITED, groups=UNLIMITED, memory=UNLIMITED, unified=unified)
    settings = {"stream_chunk_elems": chunk, "device_local": device_local}
    found = plan(count, jobs, calibration, on, mapped=mapped, options=options, **settings)
    assert 1 <= found.chunk <= count
    assert found.chunk <= found.capacity
    assert chunk is None or found.chunk == min(count, chunk) == min(count, found.capacity)
    assert 1 <= found.slots <= MAX_SLOTS
    assert options.slots in (None, found.slots)
    assert not options.pipelined or found.slots > 1
    assert found.foreseen is not None and 0 < found.foreseen < math.inf
    wanted = next((each for each in (options.device_local, device_local) if each is not None), None)
    if wanted is not None or unified:
        assert found.path == ("device-local" if wanted else "host-visible")
    if found.path == "host-visible" or found.slots == 1:
        assert found.queues == "one"
    assert found.queues == "one" or getattr(calibration, f"chunk_{found.queues}") is not None
    about = [text.split(":")[0] for text in found.reasons]
    assert about[:3] == ["path", "work-group", "chunk"]
    assert about[3:] in ([], ["slots"], ["slots", "queues"])


def test_the_argument_then_the_setting_then_unified_memory_choose_the_path() -> None:
    unified = describe_device(unified=True)
    for count, other in ((100, True), (1 << 20, False)):
        usual = plan(count).path
        assert usual != plan(count, options=RunOptions(other)).path
        assert plan(count, device_local=other).path != usual
        assert plan(count, options=RunOptions(other), device_local=not other).path != usual
        assert plan(count, on=unified).path == "host-visible"
    found = plan(1 << 20, options=RunOptions(False), device_local=True)
    assert find_reason(found, "path") == "requested with device_local=False"
    assert find_reason(plan(1 << 20, device_local=False), "path") == "GPU_DEVICE_LOCAL is 0"
    assert find_reason(plan(1 << 20, on=unified), "path").startswith("all device memory")


@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_the_path_changes_at_the_size_that_the_calibration_implies(mapped: bool) -> None:
    sizes = [1 << power for power in range(6, 25)]
    paths = [plan(size, mapped=mapped).path for size in sizes]
    staged = paths.index("device-local")
    assert 0 < staged < len(sizes) - 3
    assert set(paths[:staged]) == {"host-visible"}
    assert set(paths[staged:]) == {"device-local"}
    found = plan(sizes[staged], mapped=mapped)
    assert find_reason(found, "path").startswith("device-local, ")
    # With a slower bus, kernels read mapped memory up to larger sizes, or always.
    slow = dataclasses.replace(H200, copy_in=28e9, copy_out=28e9, copy_both=28e9)
    later = [plan(size, calibration=slow, mapped=mapped).path for size in sizes].index(
        "device-local"
    )
    assert later > staged
    crawling = dataclasses.replace(H200, copy_in=5e9, copy_out=5e9, copy_both=5e9)
    assert {plan(size, calibration=crawling, mapped=mapped).path for size in sizes} == {
        "host-visible"
    }


def test_large_plain_calls_are_split_where_overlap_gains() -> None:
    for size in (1, 2, 70, 4096, 1 << 16):
        small = plan(size)
        assert (small.chunk, small.slots) == (size, 1)
    for size in (1 << 18, 1 << 20, 1 << 24):
        large = plan(size)
        assert large.slots > 2
        assert large.slots <= len(list(large.chunks()))
        assert 256 << 10 <= large.chunk * 3 * ELEMENT.nbytes <= 64 << 20
    # A software device computes on the threads that would copy, so overlap gains nothing.
    for size in (70, 1 << 16, 1 << 19):
        assert plan(size, calibration=LAVAPIPE).chunk == size


def test_a_large_batch_of_mapped_arrays_uses_three_queues() -> None:
    for count in (1 << 16, 1 << 18, 1 << 20):
        found = plan(count, 16, mapped=True)
        assert (found.path, found.queues) == ("device-local", "split")
        assert find_reason(found, "queues").startswith("three, ")
        without = dataclasses.replace(H200, chunk_split=None)
        assert plan(count, 16, without, mapped=True).queues != "split"
        neither = dataclasses.replace(without, chunk_several=None)
        assert plan(count, 16, neither, mapped=True).queues == "one"


def test_small_jobs_use_several_queues_where_that_is_much_cheaper() -> None:
    cheap = dataclasses.replace(H200, chunk_several=3e-6)
    staged = RunOptions(device_local=True)
    found = plan(64, 32, cheap, options=staged)
    assert (found.queues, found.chunk) == ("several", 64)
    assert find_reason(found, "queues").startswith("several, ")
    assert plan(64, 32, dataclasses.replace(cheap, chunk_several=None), options=staged).queues != (
        "several"
    )
    dear = dataclasses.replace(H200, chunk_several=100e-6, chunk_split=100e-6)
    assert plan(64, 32, dear, options=staged).queues == "one"


def test_jobs_that_gain_nothing_by_overlap_run_in_one_slot() -> None:
    dear, unified = dataclasses.replace(LAVAPIPE, chunk_mapped=1e-3), describe_device(unified=True)
    found = plan(64, 4, dear, unified)
    assert (found.slots, find_reason(found, "slots")) == (
        1,
        "1, since overlapping would take longer",
    )
    assert plan(64, 4, dear, unified, options=RunOptions(pipelined=True)).slots > 1
    assert plan(64, 4, LAVAPIPE, unified).slots > 1
    one = plan(64, 4, options=RunOptions(pipelined=False))
    assert find_reason(one, "slots") == "1, requested with pipelined=False"


def test_a_few_jobs_of_plain_arrays_overlap_where_two_threads_copy_at_the_rate_of_all() -> None:
    # These batches took 0.81 to 0.95 of their time in one slot when they overlapped.
    for count, jobs in ((1 << 14, 2), (1 << 14, 3), (1 << 14, 4), (1 << 16, 2), (1 << 16, 4)):
        operands = add_operands(count)
        request = Request(ADD, operands, count, jobs, recycled=True)
        found = make_plan(request, WITH_TRANSFER_QUEUES, Settings(), H200_DIRECT)
        assert (found.chunk, found.slots) == (count, jobs)
    # This call took longer as two chunks.
    assert plan(1 << 16, calibration=H200_DIRECT).slots == 1


def test_a_whole_kernel_is_not_split_with_a_calibration() -> None:
    whole = dataclasses.replace(ADD, split="whole")
    count = 1 << 22
    operands = add_operands(count)
    for jobs, chunk in ((1, None), (16, None), (1, 1000)):
        request = Request(whole, operands, count, jobs)
        found = make_plan(request, ROOMY, Settings(stream_chunk_elems=chunk), H200)
        assert found.chunk == found.capacity == count
        assert "one chunk: the kernel cannot be split by elements" in found.reasons


def test_a_plan_by_calibration_prints_its_choices_and_reasons() -> None:
    assert str(plan(1 << 22, mapped=True)).splitlines() == [
        "4,194,304 elements on the device-local path: 8 chunks of up to 524,288, 3 slots, "
        "work-groups of 512 x 2 elements",
        "  - path: device-local, 11.9 ms expected, 27.6 ms on the other path",
        "  - work-group: 512 of (64, 128, 256, 512), the kernel's preference",
        "  - chunk: 524,288 elements, 11.9 ms expected",
        "  - slots: 3, so that the copies and dispatches of 8 chunks overlap",
        "  - queues: three, 13.7 ms with one, 11.9 ms with three, 13.7 ms with several expected",
    ]
    assert str(plan(70, 1, LAVAPIPE, options=RunOptions(True))).splitlines() == [
        "70 elements on the device-local path: 1 chunk of up to 70, 1 slot, work-groups of 64 x 1 "
        "elements",
        "  - path: requested with device_local=True",
        "  - work-group: 64 of (64, 128, 256, 512), so that a small call reaches every core",
        "  - chunk: at most 79,536,431 elements, limited by the device memory",
    ]
