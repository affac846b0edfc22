"""Every way to ask an executor for results. Each yields its calls with what came of them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gpu_executor.executor import GpuExecutor
from gpu_executor.soak.mix import Call, Draw, Refusal

PATIENCE = 60.0
"""Seconds after which a future that has no answer is one that is lost."""
CANCELLED_SHARE = 0.1
HELPED_SHARE = 0.5
"""Futures waited for without a limit: whoever waits so may be let to run the job."""
Outcomes = Iterator[tuple[Call, Any]]
"""With each call its result, the exception that came instead, or one of these:"""


class Cancelled:
    """A future was cancelled, and said so."""


class Unanswered:
    """A future had no answer in all that time."""


class AnsweredThough:
    """A future that had been cancelled was answered."""


def run(executor: GpuExecutor, calls: Sequence[Call], _draw: Draw) -> Outcomes:
    """One after the other, in the caller's thread."""
    for call in calls:
        yield call, _caught(partial(executor.run, call.kernel, *call.arrays))


def run_to_out(executor: GpuExecutor, calls: Sequence[Call], _draw: Draw) -> Outcomes:
    """The same, to arrays of the caller's."""
    for call in calls:
        out = _room(call)
        outcome = _caught(partial(executor.run, call.kernel, *call.arrays, out=out))
        yield call, outcome if isinstance(outcome, Exception) or out is None else out


def submit(executor: GpuExecutor, calls: Sequence[Call], draw: Draw) -> Outcomes:
    """All at once; some are cancelled, if they have not begun, and some are given an array."""
    asked = []
    for call in calls:
        out = _room(call) if draw.random() < 0.2 else None
        asked.append((call, executor.submit(call.kernel, *call.arrays, out=out)))
    cancelled = {id(f) for _, f in asked if draw.random() < CANCELLED_SHARE and f.cancel()}
    for call, future in asked:
        patience = None if draw.random() < HELPED_SHARE else PATIENCE
        outcome = _caught(partial(future.result, patience))
        if id(future) in cancelled:
            outcome = Cancelled() if isinstance(outcome, CANCELLED) else AnsweredThough()
        yield call, outcome


def map_(executor: GpuExecutor, calls: Sequence[Call], draw: Draw) -> Outcomes:
    """As a map, which reads ahead as far as it likes or as far as it may."""
    columns = zip(*(call.arrays for call in calls), strict=True)
    ahead = None if draw.random() < 0.5 else int(draw.integers(1, 9))
    results = executor.map(calls[0].kernel, *columns, timeout=PATIENCE, buffersize=ahead)
    yield from _together(calls, lambda: list(results))


def map_left_early(executor: GpuExecutor, calls: Sequence[Call], draw: Draw) -> Outcomes:
    """As a map of which only the first results are taken."""
    wanted = calls[: int(draw.integers(len(calls) + 1))]
    columns = zip(*(call.arrays for call in calls), strict=True)

    def taken() -> list[Any]:
        results = executor.map(calls[0].kernel, *columns, timeout=PATIENCE)
        return list(itertools.islice(results, len(wanted)))

    yield from _together(wanted, taken)
    yield from ((call, Cancelled()) for call in calls[len(wanted) :])


def in_a_callback(executor: GpuExecutor, calls: Sequence[Call], _draw: Draw) -> Outcomes:
    """A batch that the callback of another job asks for, and waits for: on a device's own thread,
    perhaps."""
    jobs, answers = [call.arrays for call in calls], queue.SimpleQueue[Any]()
    ask = partial(executor.run_batch, calls[0].kernel, jobs)
    before = executor.submit(calls[0].kernel, *calls[0].arrays)
    before.add_done_callback(lambda _: answers.put(_caught(ask)))
    try:
        outcomes = answers.get(timeout=PATIENCE)
    except queue.Empty:
        outcomes = Unanswered()
    yield from _together(calls, lambda: outcomes)


def run_async(executor: GpuExecutor, calls: Sequence[Call], _draw: Draw) -> Outcomes:
    """From an event loop, all at once."""

    async def ask() -> list[Any]:
        asked = [executor.run_async(call.kernel, *call.arrays) for call in calls]
        waiting = asyncio.gather(*asked, return_exceptions=True)
        return await asyncio.wait_for(waiting, PATIENCE)

    outcomes = _caught(lambda: asyncio.run(ask()))
    if not isinstance(outcomes, list):
        outcomes = [outcomes] * len(calls)
    yield from zip(calls, outcomes, strict=True)


def run_batch(executor: GpuExecutor, calls: Sequence[Call], draw: Draw) -> Outcomes:
    """As a batch, to new arrays or to the caller's."""
    jobs = [call.arrays for call in calls]
    out = None if draw.random() < 0.5 else [call.room() for call in calls]
    yield from _together(calls, lambda: executor.run_batch(calls[0].kernel, jobs, out=out))


@dataclass(frozen=True, slots=True)
class Way:
    """What a way takes."""

    name: str
    ask: Callable[[GpuExecutor, Sequence[Call], Draw], Outcomes]
    most: int
    """Calls at once."""
    mixed: bool = True
    """Whether they may be of several kernels, and bad ones among them."""


WAYS = (
    Way("run", run, 4),
    Way("run, out=", run_to_out, 4),
    Way("submit", submit, 48),
    Way("map", map_, 48, mixed=False),
    Way("map, left early", map_left_early, 48, mixed=False),
    Way("in a callback", in_a_callback, 8, mixed=False),
    Way("run_async", run_async, 24),
    Way("run_batch", run_batch, 48, mixed=False),
)
CANCELLED = (concurrent.futures.CancelledError, asyncio.CancelledError)


def _caught(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except TimeoutError:
        return Unanswered()
    except (Exception, asyncio.CancelledError) as error:
        return error


def _together(calls: Sequence[Call], ask: Callable[[], list[Any]]) -> Outcomes:
    """Results that come all or not at all; too few of them are for some calls none."""
    outcomes = _caught(ask)
    if not isinstance(outcomes, list):
        outcomes = [outcomes] * len(calls)
    elif len(outcomes) != len(calls):
        wrong = ValueError(f"{len(outcomes)} results for {len(calls)} calls")
        outcomes = [wrong] * len(calls)
    yield from zip(calls, outcomes, strict=True)


def _room(call: Call) -> Any:
    return None if isinstance(call.expected, Refusal) else call.room()
