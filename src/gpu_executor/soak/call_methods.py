"""The ways to call an executor: each makes calls and yields them with their outcomes."""

from __future__ import annotations

import asyncio
import concurrent.futures
import enum
import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy.random import Generator

from gpu_executor.executor import GpuExecutor
from gpu_executor.soak.workload import CheckedCall, ExpectedRefusal

RESULT_TIMEOUT = 60.0
"""Seconds after which a future without a result counts as lost."""
CANCEL_SHARE = 0.1
UNTIMED_SHARE = 0.5
"""Share of the futures that are waited for without a timeout. Such a waiter may have to run the
job itself, in its own thread."""
CANCELLED_ERRORS = (concurrent.futures.CancelledError, asyncio.CancelledError)


class FutureOutcome(enum.Enum):
    """The outcome of a future that returned neither a result nor an exception of its job."""

    CANCELLED = enum.auto()
    TIMED_OUT = enum.auto()
    COMPLETED_AFTER_CANCEL = enum.auto()
    """The future accepted `cancel()` but returned a result or an exception nevertheless."""


Outcomes = Iterator[tuple[CheckedCall, Any]]
"""Each call with its result, the exception that it raised, or a `FutureOutcome`."""


def call_run(executor: GpuExecutor, calls: Sequence[CheckedCall], _rng: Generator) -> Outcomes:
    """Call `run` for one call after the other, in the calling thread."""
    for call in calls:
        yield call, _catch(partial(executor.run, call.kernel, *call.arrays, params=call.params))


def call_run_with_out(
    executor: GpuExecutor, calls: Sequence[CheckedCall], _rng: Generator
) -> Outcomes:
    """Call `run` with `out=`."""
    for call in calls:
        out = _make_output(call)
        run = partial(executor.run, call.kernel, *call.arrays, out=out, params=call.params)
        outcome = _catch(run)
        yield call, outcome if isinstance(outcome, Exception) or out is None else out


def call_submit(executor: GpuExecutor, calls: Sequence[CheckedCall], rng: Generator) -> Outcomes:
    """Call `submit` for all calls at once, some with `out=`; then cancel some that have not
    started.
    """
    submitted = []
    for call in calls:
        out = _make_output(call) if rng.random() < 0.2 else None
        future = executor.submit(call.kernel, *call.arrays, out=out, params=call.params)
        submitted.append((call, future))
    cancelled = {id(f) for _, f in submitted if rng.random() < CANCEL_SHARE and f.cancel()}
    for call, future in submitted:
        timeout = None if rng.random() < UNTIMED_SHARE else RESULT_TIMEOUT
        outcome = _catch(partial(future.result, timeout))
        if id(future) in cancelled:
            outcome = (
                FutureOutcome.CANCELLED
                if isinstance(outcome, CANCELLED_ERRORS)
                else FutureOutcome.COMPLETED_AFTER_CANCEL
            )
        yield call, outcome


def call_map(executor: GpuExecutor, calls: Sequence[CheckedCall], rng: Generator) -> Outcomes:
    """Call `map`, with and without a limit on how far it reads ahead."""
    columns = zip(*(call.arrays for call in calls), strict=True)
    buffersize = None if rng.random() < 0.5 else int(rng.integers(1, 9))
    results = executor.map(
        calls[0].kernel,
        *columns,
        timeout=RESULT_TIMEOUT,
        buffersize=buffersize,
        params=_list_params(calls),
    )
    yield from _pair_outcomes(calls, lambda: list(results))


def call_map_partially(
    executor: GpuExecutor, calls: Sequence[CheckedCall], rng: Generator
) -> Outcomes:
    """Call `map`, and consume only the first results."""
    wanted = calls[: int(rng.integers(len(calls) + 1))]
    columns = zip(*(call.arrays for call in calls), strict=True)

    def take_first() -> list[Any]:
        results = executor.map(
            calls[0].kernel, *columns, timeout=RESULT_TIMEOUT, params=_list_params(calls)
        )
        return list(itertools.islice(results, len(wanted)))

    yield from _pair_outcomes(wanted, take_first)
    yield from ((call, FutureOutcome.CANCELLED) for call in calls[len(wanted) :])


def call_from_callback(
    executor: GpuExecutor, calls: Sequence[CheckedCall], _rng: Generator
) -> Outcomes:
    """Call `run_batch` from a done callback of another job, possibly on a device's worker
    thread.
    """
    jobs, answers = [call.arrays for call in calls], queue.SimpleQueue[Any]()
    run_batch = partial(executor.run_batch, calls[0].kernel, jobs, params=_list_params(calls))
    first = executor.submit(calls[0].kernel, *calls[0].arrays, params=calls[0].params)
    first.add_done_callback(lambda _: answers.put(_catch(run_batch)))
    try:
        outcomes = answers.get(timeout=RESULT_TIMEOUT)
    except queue.Empty:
        outcomes = FutureOutcome.TIMED_OUT
    yield from _pair_outcomes(calls, lambda: outcomes)


def call_run_async(
    executor: GpuExecutor, calls: Sequence[CheckedCall], _rng: Generator
) -> Outcomes:
    """Call `run_async` from an event loop, for all calls at once."""

    async def gather() -> list[Any]:
        started = [
            executor.run_async(call.kernel, *call.arrays, params=call.params) for call in calls
        ]
        gathered = asyncio.gather(*started, return_exceptions=True)
        return await asyncio.wait_for(gathered, RESULT_TIMEOUT)

    outcomes = _catch(lambda: asyncio.run(gather()))
    if not isinstance(outcomes, list):
        outcomes = [outcomes] * len(calls)
    yield from zip(calls, outcomes, strict=True)


def call_run_batch(executor: GpuExecutor, calls: Sequence[CheckedCall], rng: Generator) -> Outcomes:
    """Call `run_batch`, with and without `out=`."""
    jobs = [call.arrays for call in calls]
    out = None if rng.random() < 0.5 else [call.make_output() for call in calls]
    run_batch = partial(
        executor.run_batch, calls[0].kernel, jobs, out=out, params=_list_params(calls)
    )
    yield from _pair_outcomes(calls, run_batch)


@dataclass(frozen=True, slots=True)
class CallMethod:
    """One way to call an executor, and the calls that it takes."""

    name: str
    call: Callable[[GpuExecutor, Sequence[CheckedCall], Generator], Outcomes]
    max_calls: int
    """The number of calls made at once."""
    mixed: bool = True
    """Whether the calls may be of several kernels and some of them invalid."""


CALL_METHODS = (
    CallMethod("run", call_run, 4),
    CallMethod("run, out=", call_run_with_out, 4),
    CallMethod("submit", call_submit, 48),
    CallMethod("map", call_map, 48, mixed=False),
    CallMethod("map, left early", call_map_partially, 48, mixed=False),
    CallMethod("in a callback", call_from_callback, 8, mixed=False),
    CallMethod("run_async", call_run_async, 24),
    CallMethod("run_batch", call_run_batch, 48, mixed=False),
)


def _list_params(calls: Sequence[CheckedCall]) -> list[Any]:
    """The parameters of each call."""
    return [call.params for call in calls]


def _catch(function: Callable[[], Any]) -> Any:
    """Return the function's result or exception; a timeout is `FutureOutcome.TIMED_OUT`."""
    try:
        return function()
    except TimeoutError:
        return FutureOutcome.TIMED_OUT
    except (Exception, asyncio.CancelledError) as error:
        return error


def _pair_outcomes(calls: Sequence[CheckedCall], get_results: Callable[[], list[Any]]) -> Outcomes:
    """Pair calls with results that arrive as one list.

    A single exception is the outcome of every call, and so is a list of the wrong length.
    """
    outcomes = _catch(get_results)
    if not isinstance(outcomes, list):
        outcomes = [outcomes] * len(calls)
    elif len(outcomes) != len(calls):
        wrong = ValueError(f"{len(outcomes)} results for {len(calls)} calls")
        outcomes = [wrong] * len(calls)
    yield from zip(calls, outcomes, strict=True)


def _make_output(call: CheckedCall) -> Any:
    return None if isinstance(call.expected, ExpectedRefusal) else call.make_output()
