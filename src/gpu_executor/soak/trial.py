"""The soak itself: callers at work in stretches, with a rest after each to see what is held."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpu_executor.executor.stats import ExecutorStats
from gpu_executor.soak.caller import Caller
from gpu_executor.soak.faults import Faults
from gpu_executor.soak.fleet import Fleet
from gpu_executor.soak.memory import Movement, Sample, movements, sample
from gpu_executor.soak.tally import Tally
from gpu_executor.vulkan.binding import live_objects

CALLERS = 3
STRETCHES = 24
LONGEST = 10.0
"""Seconds between two rests, at most."""
PATIENCE = 120.0
"""Seconds that a caller is waited for before what it asked for is lost."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a soak did, and what it found."""

    seed: int
    seconds: float
    tally: Tally
    faults: dict[tuple[str, str], int]
    """Fired, by kind and call."""
    begun_again: int
    """Chains on a card that a fault ended."""
    executors: tuple[ExecutorStats, ...]
    """At the end; behind them those that had to be replaced."""
    absent: tuple[str, ...]
    """Backends that are not there, and why."""
    samples: tuple[Sample, ...]
    moved: tuple[Movement, ...]
    left: dict[str, int]
    """Vulkan objects that were made and are there after everything was closed."""

    @property
    def well(self) -> bool:
        return not self.tally.troubles


def soak(
    minutes: float,
    seed: int,
    faults_per_minute: float = 60.0,
    show: Callable[[float], object] = lambda _share: None,
) -> Report:
    """Run for so long; `show` is told which share of the time is over."""
    for_callers, for_faults = np.random.SeedSequence(seed).spawn(2)
    draws = [np.random.default_rng(each) for each in for_callers.spawn(CALLERS)]
    tally, faults = Tally(), Faults(np.random.default_rng(for_faults), faults_per_minute)
    gc.collect()
    before = live_objects()
    begun = time.monotonic()
    with _watched_threads(tally), faults, Fleet() as fleet:
        callers = [Caller(draw, fleet.executors, faults, tally) for draw in draws]
        opened, samples = time.monotonic(), []
        for until in _ends(opened, 60 * minutes):
            if not _stretch(callers, until, tally):
                fleet.abandon()
                break
            faults.rest()
            fleet.renew()
            samples.append(_rest(begun, fleet, callers))
            show((time.monotonic() - opened) / (60 * minutes))
        else:
            for caller in callers:
                caller.card.close()
        executors, absent = tuple(fleet.stats()), tuple(fleet.absent)
    gc.collect()
    moved = movements(samples)
    for each in moved:
        if each.grew:
            tally.trouble("growth", f"{each.what}: {each.first:,.0f} to {each.last:,.0f}")
    left = {kind: n - before.get(kind, 0) for kind, n in live_objects().items()}
    left = {kind: count for kind, count in left.items() if count}
    if left:
        tally.trouble("growth", f"Vulkan objects are left after closing: {left}")
    return Report(
        seed=seed,
        seconds=time.monotonic() - begun,
        tally=tally,
        faults=dict(faults.fired),
        begun_again=sum(caller.card.begun_again for caller in callers),
        executors=executors,
        absent=absent,
        samples=tuple(samples),
        moved=tuple(moved),
        left=left,
    )


def _ends(begun: float, seconds: float) -> Iterator[float]:
    """Of the stretches."""
    number = max(STRETCHES, round(seconds / LONGEST))
    yield from (begun + seconds * (index + 1) / number for index in range(number))


def _stretch(callers: Sequence[Caller], until: float, tally: Tally) -> bool:
    """Whether all of them came back."""
    threads = [
        threading.Thread(target=caller.work, args=(until,), name=f"caller {index}", daemon=True)
        for index, caller in enumerate(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0) + PATIENCE)
    waiting = [each for each, thread in zip(callers, threads, strict=True) if thread.is_alive()]
    for caller in waiting:
        tally.trouble("lost", f"no answer to {caller.doing}")
    if waiting:
        faulthandler.dump_traceback(2)  # to stderr: where everybody stands
    return not waiting


def _rest(begun: float, fleet: Fleet, callers: Sequence[Caller]) -> Sample:
    for caller in callers:
        caller.look_again()
    devices = [device for executor in fleet.executors for device in executor.stats().devices]
    inside = [device.inside for device in devices]
    inside += [caller.card.stats() for caller in callers]
    software = not any(seat.on_gpu for each in fleet.executors for seat in each.ranking)
    return sample(begun, inside, software=software)


@contextlib.contextmanager
def _watched_threads(tally: Tally) -> Iterator[None]:
    """What ends a thread is trouble, whoever's thread it is."""
    before = threading.excepthook

    def noted(details: threading.ExceptHookArgs) -> None:
        tally.thread_died(details)
        sys.__excepthook__(
            details.exc_type, details.exc_value or Exception(), details.exc_traceback
        )

    threading.excepthook = noted
    try:
        yield
    finally:
        threading.excepthook = before
