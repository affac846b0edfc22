"""Work on arrays on the card: recorded once, submitted many times without waiting, timed by the
wall clock."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_executor.dispatch import Step
from gpu_executor.vulkan.persistent import PersistentVulkanBackend

TOGETHER = 16
"""Steps of one submission at most. Submitting takes a Neoverse-N1 8 us, which would show beside a
step of 40: squares of 16 Mi small elements take that long at 3.4 TB/s."""
LEAST_ROUNDS = 3
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure, in seconds."""

    warm_up: float = 0.4
    """A GPU that idled runs at a fraction of its clock (345 of 1,980 MHz on an NVIDIA H200), and
    takes some tenths of a second of work in a row until it does not: a transform of 0.39 ms took
    1.5 ms for the first quarter of a second."""
    a_round: float = 0.02
    rounds: int = 7
    most: float = 0.5
    """For each of what is timed together; then there are no more rounds, but a few anyway."""


USUAL = Pace()


def recorded(gpu: PersistentVulkanBackend, call: Call) -> Call:
    """The same to be run again and again, without what calling it costs the host.

    It also has its results in the same memory every time.
    """
    call()  # makes pipelines and tables, which are no part of it
    with gpu.graph() as graph:
        call()
    return graph


def steps_seconds(
    gpu: PersistentVulkanBackend, steps: Sequence[Step], pace: Pace = USUAL
) -> list[float]:
    """The seconds of each step, among many of the same in a row, each behind a barrier."""
    card = gpu._session.device_memory
    runs, counts = [], []
    for step in steps:
        alone = recorded(gpu, partial(card.submit, [step]))
        count = min(_times_in_a_round(gpu, alone, pace), TOGETHER)
        runs.append(recorded(gpu, partial(card.submit, [step] * count)))
        counts.append(count)
    taken = calls_seconds(gpu, runs, pace)
    return [seconds / count for seconds, count in zip(taken, counts, strict=True)]


def calls_seconds(
    gpu: PersistentVulkanBackend, calls: Sequence[Call], pace: Pace = USUAL
) -> list[float]:
    """The median seconds of each, among many in a row of which the last is waited for.

    In turns, so that a slow spell of the machine hits all.
    """
    _warm_up(gpu, calls[0], pace)
    filling = [_times_in_a_round(gpu, call, pace) for call in calls]
    rounds: list[list[float]] = []
    end = time.perf_counter() + pace.most * len(calls)
    while len(rounds) < pace.rounds and (len(rounds) < LEAST_ROUNDS or time.perf_counter() < end):
        rounds.append(
            [_timed(gpu, call, times) / times for call, times in zip(calls, filling, strict=True)]
        )
    return [statistics.median(taken) for taken in zip(*rounds, strict=True)]


def _warm_up(gpu: PersistentVulkanBackend, call: Call, pace: Pace) -> None:
    end = time.perf_counter() + pace.warm_up
    times = 1
    while time.perf_counter() < end:
        times = max(int(pace.a_round * times / _timed(gpu, call, times)), 1)


def _times_in_a_round(gpu: PersistentVulkanBackend, call: Call, pace: Pace) -> int:
    """By what it takes alone, the second time."""
    alone = [_timed(gpu, call, 1) for _ in range(2)]
    return max(int(pace.a_round / alone[-1]), 1)


def _timed(gpu: PersistentVulkanBackend, call: Call, times: int) -> float:
    begun = time.perf_counter()
    for _ in range(times):
        call()
    gpu._session.device_memory.stream.wait()
    return time.perf_counter() - begun
