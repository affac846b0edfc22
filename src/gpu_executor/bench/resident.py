"""Work on arrays on the card, timed by the wall clock over many submissions that nobody waits for.

What submitting takes is hidden behind the device's work where that takes longer; where it does not,
it is what is measured.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpu_executor.dispatch import Step
from gpu_executor.vulkan.on_card import CardArrays

TOGETHER = 16
"""Steps of one submission. A step takes a Neoverse-N1 110 us to record and submit alone, 60 us
among 16; an NVIDIA H200 streams 200 MB in about as long."""
IN_FLIGHT = 8
"""Calls that are submitted before the first is waited for: what they make takes memory until
then."""
LEAST_ROUNDS = 3
Submit = Callable[[int], None]
"""Does something so many times, without waiting for it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to measure, in seconds."""

    warm_up: float = 0.05
    """A GPU that idled runs at a fraction of its clock (345 of 1,980 MHz on an NVIDIA H200)."""
    a_round: float = 0.02
    rounds: int = 7
    most: float = 0.5
    """For each of what is timed together; then there are no more rounds, but a few anyway."""


USUAL = Pace()


def steps_seconds(card: CardArrays, steps: Sequence[Step], pace: Pace = USUAL) -> list[float]:
    """The seconds of each step, among many of the same in a row, each behind a barrier."""

    def submitting(step: Step) -> Submit:
        def submit(times: int) -> None:
            for left in range(times, 0, -TOGETHER):
                card.submit([step] * min(left, TOGETHER))

        return submit

    return _in_turns(card, [submitting(step) for step in steps], pace)


def calls_seconds(
    card: CardArrays, calls: Sequence[Callable[[], object]], pace: Pace = USUAL
) -> list[float]:
    """The seconds of each of some functions, which submit and do not wait, among many in a row."""

    def submitting(call: Callable[[], object]) -> Submit:
        def submit(times: int) -> None:
            for done in range(times):
                if done and done % IN_FLIGHT == 0:
                    card.chain.wait()
                call()

        return submit

    return _in_turns(card, [submitting(call) for call in calls], pace)


def _in_turns(card: CardArrays, submits: Sequence[Submit], pace: Pace) -> list[float]:
    """The median of each over rounds, taken in turns so that a slow spell hits all."""
    filling = [_times_in_a_round(card, submit, pace) for submit in submits]
    rounds: list[list[float]] = []
    end = time.perf_counter() + pace.most * len(submits)
    while len(rounds) < pace.rounds and (len(rounds) < LEAST_ROUNDS or time.perf_counter() < end):
        rounds.append(
            [
                _timed(card, submit, times) / times
                for submit, times in zip(submits, filling, strict=True)
            ]
        )
    return [statistics.median(taken) for taken in zip(*rounds, strict=True)]


def _times_in_a_round(card: CardArrays, submit: Submit, pace: Pace) -> int:
    """By what it takes alone, on a device that is warm."""
    _timed(card, submit, 1)  # makes pipelines and tables
    end = time.perf_counter() + pace.warm_up
    alone = _timed(card, submit, 1)
    while time.perf_counter() < end:
        alone = _timed(card, submit, 1)
    return max(int(pace.a_round / alone), 1)


def _timed(card: CardArrays, submit: Submit, times: int) -> float:
    begun = time.perf_counter()
    submit(times)
    card.chain.wait()
    return time.perf_counter() - begun
