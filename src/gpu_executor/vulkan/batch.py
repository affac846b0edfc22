"""Batches and streams: many calls of one kernel, whose copies and dispatches overlap."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any

from gpu_executor.arrays.overlaps import JobsInFlight
from gpu_executor.calls.arguments import collect_jobs
from gpu_executor.calls.call import Call, Signature, iterate_params, name_job
from gpu_executor.calls.streams import StreamJob, check_not_running, iterate_jobs
from gpu_executor.kernel import Kernel
from gpu_executor.plan import MAX_SLOTS, CallPlan, RunOptions
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.slot_buffers import SlotLayout

Job = Sequence[Any]
"""The arrays of one call."""


def run_batch(
    session: Session,
    kernel: Kernel,
    jobs: Iterable[Job],
    out: Iterable[Any] | None,
    options: RunOptions,
    params: Any = None,
    keep: bool | None = None,
) -> list[Any]:
    """Run every job; results in the order of the jobs. `keep` says where they go, as in `run`.

    All jobs are checked before the first is submitted. All jobs on device arrays are submitted
    before the first of their results is fetched.
    """
    session.check_open()
    given, outs = collect_jobs(jobs, out)
    calls = [
        session.call_preparer.signatures.make_job_call(
            kernel, job, index, outs and outs[index], own, keep=keep
        )
        for index, (job, own) in enumerate(zip(given, iterate_params(params, len(given))))  # noqa: B905
    ]
    on_device, on_host = list[Call](), list[Call]()
    for call in calls:
        (on_device if keep or call.touches_device() else on_host).append(call)
    busy = [call for call in on_host if call.signature.count]
    for call in on_device:
        name_job(session.device_memory.check_owner, call)
    for call in on_device:
        name_job(session.submit_call, call)
    if keep is False:
        for call in on_device:
            name_job(Call.fetch_results, call)
    if busy:
        prepared = session.prepare_batch(busy, options)
        session.run_to_end(busy, prepared)
    if len(busy) < len(calls):
        for call in calls:
            call.make_outputs()
    return [call.result() for call in calls]


class Stream(Iterator[Any]):
    """An iterator over results, in order.

    An open stream holds slots; closing the backend ends it. A stream that was dropped is closed by
    the next call: the garbage collector may find it while the thread holds a lock that closing it
    needs.
    """

    def __init__(
        self,
        session: Session,
        kernel: Kernel,
        jobs: Iterable[Job],
        out: Iterable[Any] | None,
        options: RunOptions,
        params: Any = None,
        keep: bool | None = None,
    ) -> None:
        self._session = session
        calls = _check_jobs(session, kernel, iterate_jobs(jobs, out, params), keep)
        self._results = _stream_results(session, calls, options, keep, has_out=out is not None)
        session.streams.add(self)
        self._finalizer = weakref.finalize(self, session.dropped_streams.append, self._results)
        self._finalizer.atexit = False

    def __next__(self) -> Any:
        session = self._session
        session.check_open()
        session.begin_iteration()
        try:
            result = next(self._results)
            if session.closed:
                self._results.close()  # the thread that closes the backend waits for the slots
        except ValueError:
            check_not_running(self._results)
            raise
        finally:
            session.end_iteration()
        return result

    def close(self) -> None:
        """End the stream: wait for jobs in flight, discard their results and release the slots."""
        try:
            self._results.close()
        except ValueError:
            check_not_running(self._results)
            raise
        self._finalizer.detach()


def _check_jobs(
    session: Session, kernel: Kernel, jobs: Iterator[StreamJob], keep: bool | None
) -> Iterator[Call]:
    """Check each job as it comes, and yield it as a call."""
    signatures = session.call_preparer.signatures
    for index, arrays, out, params in jobs:
        session.check_open()  # the iterables may close the backend
        yield signatures.make_job_call(kernel, arrays, index, out, params, keep=keep)


def _stream_results(
    session: Session,
    calls: Iterator[Call],
    options: RunOptions,
    keep: bool | None,
    *,
    has_out: bool,
) -> Generator[Any, None, None]:
    """Run the calls in slots that are as large as the largest job so far."""
    in_flight = JobsInFlight()

    def check_start(call: Call) -> None:
        if has_out:
            assert call.job is not None
            in_flight.add(call.job, call.inputs, call.results)

    call = next(calls, None)
    while call is not None:
        if keep or call.touches_device():
            result = name_job(session.submit_call, call)
            yield result if keep is not False else name_job(Call.fetch_results, call)
            call = next(calls, None)
            continue
        if call.signature.count == 0:
            call.make_outputs()
            yield call.result()
            call = next(calls, None)
            continue
        # The length of a stream is unknown: plan as for a batch of jobs like this one.
        prepared = session.prepare_batch([call] * MAX_SLOTS, options)
        feed = _CallsThatFit(call, calls, prepared.plan)
        # Close it with the stream, so that its slots do not wait for the garbage collector.
        with contextlib.closing(session.run_stream(feed, prepared, check_start)) as running:
            for done in running:
                if has_out:
                    in_flight.remove_oldest()
                yield done.result()
        call = feed.next_call


class _CallsThatFit:
    """The calls that fit a plan's slots. The first that does not fit is left for the next plan."""

    def __init__(self, first: Call, calls: Iterator[Call], plan: CallPlan) -> None:
        self._first, self._calls, self._plan = first, calls, plan
        self._layout = SlotLayout.of(plan, first.signature)
        self.next_call: Call | None = None

    def __iter__(self) -> Iterator[Call]:
        yield self._first
        for call in self._calls:
            if call.touches_device() or not self._fits(call.signature):
                self.next_call = call
                return
            yield call

    def _fits(self, signature: Signature) -> bool:
        if signature.kernel.split == "whole":
            # A slot has the operands, the shape words and the scratch buffer of one signature.
            return SlotLayout.of(self._plan, signature) == self._layout
        wanted, chunk = self._first.signature.count, self._plan.chunk
        return signature.count > 0 and (signature.count <= max(wanted, chunk) or chunk < wanted)
