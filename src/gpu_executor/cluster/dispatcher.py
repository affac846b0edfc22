"""The dispatcher: the thread that sends waiting jobs to actors and completes their futures.

Every event reaches this thread through one queue, in order: a submitted job, an actor's reply, an
actor that is ready, a node that joined, the shutdown. So the state here needs no lock. A message is
handled once: handling its reply removes it from the messages in flight.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray import exceptions

from gpu_executor.cluster.actor_slots import ActorClient, ActorSlot, InFlightLimits, Message
from gpu_executor.cluster.jobs import AdmissionControl, ClusterJob
from gpu_executor.cluster.node_watcher import DeviceQuery, NodeListing, NodeWatcher
from gpu_executor.cluster.serialization import KernelRegistry, RemoteFailure, detach_results
from gpu_executor.cluster.session import RAY_SESSION
from gpu_executor.errors import ClosedError, DeviceLostError, GpuError, WrongResultError

MAX_FAILED_OPENS = 3
"""Actors in a row that may fail to open a device before its slot is quarantined."""
CLOSE_TIMEOUT_SECONDS = 10.0
ACTOR_DEATH_ERRORS = (
    exceptions.RayActorError,
    exceptions.ActorUnschedulableError,
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,
)


@dataclass(frozen=True, slots=True)
class _Shutdown:
    cancel: bool
    """Whether jobs that were not sent yet are cancelled."""


class Dispatcher:
    """Owns the actor slots, the waiting jobs and the messages in flight."""

    def __init__(
        self,
        slots: Sequence[ActorSlot],
        node_watcher: NodeWatcher,
        limits: InFlightLimits,
        tries: int,
    ) -> None:
        self.slots, self._node_watcher = slots, node_watcher
        self._limits, self._tries = limits, tries
        self.admission = AdmissionControl()
        self._update_active_slots()
        self.resent = 0
        """How often a call was sent again."""
        self._kernels = KernelRegistry()
        self._waiting: deque[ClusterJob] = deque()
        self._sent: set[Message] = set()
        self._events: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="gpu-executor cluster", daemon=True)

    def start(self) -> None:
        """Start an actor in every slot and wait until all are ready; raise if one fails to open its
        device.
        """
        try:
            for slot in self.slots:
                slot.start_actor(self._put_reply)
            for _ in self.slots:
                actor, reply = self._events.get()
                error = actor.slot.handle_open_reply(reply)
                if error is not None:
                    raise error
        except BaseException:
            self._stop_actors()
            raise
        # Handlers run in the reverse order of registration. Ray registered its own when it was
        # imported, so this one runs first.
        atexit.register(self._close_at_exit)
        self._thread.start()

    def put(self, job: ClusterJob) -> None:
        """Queue a job that `admission` has counted."""
        self._events.put(job)

    def close(self, *, cancel: bool = False) -> None:
        """Accept no more jobs. The thread stops the actors when all jobs are answered."""
        self.admission.close()
        self._events.put(_Shutdown(cancel))

    def join(self) -> None:
        """Wait for the thread to end; do nothing if called from the thread itself."""
        if not self.is_current_thread():
            self._thread.join()

    def is_current_thread(self) -> bool:
        """Return whether the caller runs on the dispatcher's thread, as the callbacks of futures
        do. Such a caller must not wait for the dispatcher."""
        return threading.current_thread() is self._thread

    # --- events ---

    def _run(self) -> None:
        reason: BaseException = GpuError("the cluster's dispatcher stopped before it ran this job")
        try:
            while not (self.admission.closed and self.admission.calls == 0):
                self._wait_for_event()
                self._handle_queued_events()
                # If Ray was shut down, the next use of it would initialize it again.
                if ray.is_initialized():
                    if self._all_actors_are_busy():
                        self._node_watcher.list_nodes_if_due(self._put_reply)
                    self._send_waiting()
                else:
                    self._fail_all(
                        ClosedError("Ray was shut down while the executor was open; open another")
                    )
        except BaseException as error:
            reason = error
            raise
        finally:
            self._fail_remaining(reason)
            self._stop_actors()
            RAY_SESSION.release()
            atexit.unregister(self._close_at_exit)

    def _wait_for_event(self) -> None:
        """Handle the next event. While all actors are busy, stop waiting when the next listing of
        nodes is due.
        """
        busy = self._all_actors_are_busy()
        timeout = self._node_watcher.seconds_until_listing() if busy else None
        try:
            event = self._events.get(timeout=timeout)
        except Empty:
            return
        self._handle(event)

    def _handle_queued_events(self) -> None:
        """Handle the events that have arrived meanwhile, so that jobs can share a message."""
        while True:
            try:
                self._handle(self._events.get_nowait())
            except Empty:
                return

    def _handle(self, event: Any) -> None:
        if isinstance(event, ClusterJob):
            self._waiting.append(event)
        elif isinstance(event, _Shutdown):
            if event.cancel:
                self._cancel_waiting()
        else:
            subject, reply = event
            if isinstance(subject, Message):
                self._handle_reply(subject, reply)
            elif isinstance(subject, ActorClient):
                if subject.slot.actor is subject:
                    self._handle_open_reply(subject.slot, reply)
            else:
                self._node_watcher.handle_reply(subject, reply, self._put_reply)

    def _put_reply(
        self, subject: Message | ActorClient | NodeListing | DeviceQuery, reply: Future[Any]
    ) -> None:
        self._events.put((subject, reply))

    # --- sending ---

    def _send_waiting(self) -> None:
        while self._waiting:
            job = self._waiting[0]
            if not self._active:
                if not self._node_watcher.is_expecting_devices:
                    reasons = [slot.quarantined for slot in self.slots]
                    self._fail_waiting(next(each for each in reasons if each is not None))
                return
            available = [
                slot.actor
                for slot in self._active
                if slot.actor is not None and self._limits.allow(slot.actor, job)
            ]
            if not available:
                return
            # A job whose actor died goes to another slot if one is available.
            actor = min(
                available, key=lambda each: (each.slot is job.last_slot, each.calls, each.nbytes)
            )
            jobs = self._take_jobs_for_message(actor)
            if jobs:
                self._send(actor, jobs)

    def _take_jobs_for_message(self, actor: ActorClient) -> list[ClusterJob]:
        """Take the first waiting job, and those behind it that may share its message."""
        size = self._limits.choose_message_size(actor, len(self._waiting), len(self._active))
        jobs: list[ClusterJob] = []
        nbytes = 0
        while self._waiting and len(jobs) < size:
            job = self._waiting[0]
            with_job = nbytes + job.nbytes
            if jobs and not self._limits.allow_in_message(actor, jobs[0], job, with_job):
                break
            self._waiting.popleft()
            if job.start():
                jobs.append(job)
                nbytes = with_job
            else:  # the caller cancelled it
                self.admission.release(job.nbytes)
        return jobs

    def _send(self, actor: ActorClient, jobs: Sequence[ClusterJob]) -> None:
        try:
            self._sent.add(actor.send(jobs, self._kernels, self._put_reply))
        except Exception as error:  # the kernel cannot be pickled, or the object store is full
            self._fail(jobs, error)

    # --- replies ---

    def _handle_reply(self, message: Message, reply: Future[Any]) -> None:
        actor = message.actor
        if message not in self._sent:
            return  # already handled: its jobs failed when Ray was shut down
        error = reply.exception()
        actor_died = error is not None and _is_actor_death(error)
        if error is not None and actor_died:
            self._handle_death(actor, error)
        self._discard(message)
        if error is None:
            self._complete(message, reply.result())
        elif actor_died or _is_lost_reply(error):
            self._resend(message.jobs, error, actor, count_death=not actor.retired)
        else:
            self._fail(message.jobs, error)

    def _discard(self, message: Message) -> None:
        self._sent.remove(message)
        message.actor.discard(message)

    def _complete(self, message: Message, outcomes: Sequence[Any]) -> None:
        slot = message.actor.slot
        for job, outcome in zip(message.jobs, detach_results(outcomes), strict=True):
            if not isinstance(outcome, RemoteFailure):
                slot.answered += 1
                self.admission.release(job.nbytes)
                job.complete(outcome)
                continue
            error = outcome.to_exception()
            error.add_note(f"raised by the actor for {slot.placement}")
            if _is_device_failure(error):
                message.actor.retired = True
                self._handle_death(message.actor, error)
                self._resend([job], error, message.actor, count_death=True)
            else:
                slot.answered += 1
                self._fail([job], error)

    def _fail(self, jobs: Sequence[ClusterJob], error: BaseException) -> None:
        for job in jobs:
            self.admission.release(job.nbytes)
            job.future.set_exception(error)

    def _resend(
        self,
        jobs: Sequence[ClusterJob],
        error: BaseException,
        actor: ActorClient,
        *,
        count_death: bool,
    ) -> None:
        """Put jobs back to the front of the queue; a job that has used up its tries fails."""
        for job in reversed(jobs):
            job.last_slot = actor.slot
            job.actor_deaths += count_death
            if job.actor_deaths >= self._tries:
                self._fail([job], error)
            else:
                self.resent += 1
                self._waiting.appendleft(job)

    # --- actors ---

    def _handle_death(self, actor: ActorClient, error: BaseException) -> None:
        """Replace a dead actor. Each of its other messages gets an error reply of its own."""
        slot = actor.slot
        if slot.actor is not actor:
            return  # the reply to another message has already reported the death
        slot.deaths += 1
        self._replace_actor(slot, error)

    def _handle_open_reply(self, slot: ActorSlot, reply: Future[Any]) -> None:
        error = slot.handle_open_reply(reply)
        if error is not None:
            self._replace_actor(slot, error)
        elif self._node_watcher.accept(slot):
            self.slots = (*self.slots, slot)  # a new tuple, because other threads read the old one
            self._update_active_slots()

    def _replace_actor(self, slot: ActorSlot, error: BaseException) -> None:
        slot.kill_actor()
        if slot.failed_opens >= MAX_FAILED_OPENS:
            slot.quarantined = error
            if not self._node_watcher.reject(slot, error):
                self._update_active_slots()
        elif ray.is_initialized():
            slot.start_actor(self._put_reply)

    def _update_active_slots(self) -> None:
        """Choose the slots that get jobs: those whose device has the best rank among the usable
        ones. Devices of a better rank may have joined.
        """
        usable = [slot for slot in self.slots if slot.quarantined is None]
        best = min((slot.placement.candidate.rank for slot in usable), default=None)
        self._active = [slot for slot in usable if slot.placement.candidate.rank == best]
        actors = max(len(self._active), 1)
        self.admission.set_limits(self._limits.calls * actors, self._limits.nbytes * actors)

    def _all_actors_are_busy(self) -> bool:
        """Return whether there are pending calls and no idle actor: then new nodes would help."""
        actors = [slot.actor for slot in self._active]
        return self.admission.calls > 0 and not any(
            actor is not None and actor.ready and not actor.messages for actor in actors
        )

    # --- shutdown ---

    def _cancel_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            if job.future.cancel():
                job.start()
                self.admission.release(job.nbytes)
            else:  # its future is running: the job was sent before and waits to be sent again
                self._waiting.append(job)

    def _fail_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            if job.start():
                self._fail([job], error)
            else:
                self.admission.release(job.nbytes)

    def _fail_all(self, error: BaseException) -> None:
        """Fail the waiting jobs, and the sent jobs, whose replies will never arrive."""
        for message in list(self._sent):
            self._discard(message)
            self._fail(message.jobs, error)
        self._fail_waiting(error)

    def _fail_remaining(self, error: BaseException) -> None:
        """Fail all jobs after the loop stopped early, including jobs that are admitted but not yet
        in the event queue.
        """
        self.admission.close()
        self._fail_all(error)
        while self.admission.calls:
            event = self._events.get()
            if isinstance(event, ClusterJob):
                self._waiting.append(event)
                self._fail_waiting(error)

    def _close_at_exit(self) -> None:
        self.close()
        self.join()

    def _stop_actors(self) -> None:
        if not ray.is_initialized():
            return  # Ray's shutdown has ended the actors
        self._node_watcher.stop()
        actors = [slot.actor for slot in self.slots if slot.actor is not None]
        with contextlib.suppress(Exception):  # an actor that cannot close is killed below
            closing = [actor.close_device() for actor in actors]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_TIMEOUT_SECONDS)
        for actor in actors:
            actor.kill()


# --- classification of a reply's exception ---


def _is_actor_death(error: BaseException) -> bool:
    """Return whether the actor is dead or unreachable.

    A `RayTaskError` comes from a living actor. It can be a `RayActorError` at the same time, if an
    argument refers to the result of another actor that is dead.
    """
    return isinstance(error, ACTOR_DEATH_ERRORS) and not isinstance(error, exceptions.RayTaskError)


def _is_lost_reply(error: BaseException) -> bool:
    """Return whether the actor replied, but the reply was lost with a node or an object store."""
    return isinstance(error, exceptions.ObjectLostError)


def _is_device_failure(error: BaseException) -> bool:
    """Return whether the actor is alive, but its device is lost or computed a wrong result."""
    return isinstance(error, DeviceLostError | WrongResultError)
