"""The dispatcher: the thread that sends waiting jobs to actors and gives futures their answers.

All that happens comes to it through one queue, in order: a job, an answer, an actor that is ready,
a node that joined, the end. So nothing here needs a lock, and a message is answered once: whoever
answers it takes it out of its actor's messages.
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

from gpu_executor.cluster.admission import Admission
from gpu_executor.cluster.failure import Failure
from gpu_executor.cluster.jobs import Job
from gpu_executor.cluster.kernels import Kernels
from gpu_executor.cluster.limits import Limits
from gpu_executor.cluster.losses import actor_is_gone, answer_is_lost, device_is_lost
from gpu_executor.cluster.newcomers import Look, Newcomers, Question
from gpu_executor.cluster.posts import Actor, Message, Post
from gpu_executor.cluster.results import own_results
from gpu_executor.cluster.session import SESSION
from gpu_executor.errors import ClosedError, GpuError

MOST_REFUSALS = 3
"""Actors in a row that cannot open a device, before it is left alone."""
CLOSING_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _End:
    cancel: bool


class Dispatcher:
    def __init__(
        self, posts: Sequence[Post], newcomers: Newcomers, limits: Limits, tries: int
    ) -> None:
        self.posts, self._newcomers, self._limits, self._tries = posts, newcomers, limits, tries
        self.admission = Admission()
        self._count_posts()
        self.resent = 0
        """Calls that were sent again."""
        self._kernels = Kernels()
        self._waiting: deque[Job] = deque()
        self._sent: set[Message] = set()
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="gpu-executor cluster", daemon=True)

    def start(self) -> None:
        """Send an actor to every post, and take jobs when all are ready; else raise why not."""
        try:
            for post in self.posts:
                post.start(self._arrived)
            for _ in self.posts:
                actor, answer = self._inbox.get()
                error = actor.post.opened(answer)
                if error is not None:
                    raise error
        except BaseException:
            self._end_actors()
            raise
        # Behind Ray's own, which was registered when it was imported, and so called before it.
        atexit.register(self._at_exit)
        self._thread.start()

    def put(self, job: Job) -> None:
        """One that was admitted."""
        self._inbox.put(job)

    def close(self, *, cancel: bool = False) -> None:
        """Take no more jobs; when those there are have their answers, end the actors."""
        self.admission.close()
        self._inbox.put(_End(cancel))

    def join(self) -> None:
        if not self.is_current():
            self._thread.join()

    def is_current(self) -> bool:
        """Whether this is its thread: that of futures' callbacks, which must not wait for it."""
        return threading.current_thread() is self._thread

    # --- the thread ---

    def _work(self) -> None:
        why: BaseException = GpuError("the cluster's dispatcher ended before its jobs")
        try:
            while not (self.admission.closed and self.admission.calls == 0):
                self._take_next()
                self._take_all()
                # Ray would begin anew with the next call of it.
                if ray.is_initialized():
                    if self._all_are_busy():
                        self._newcomers.look(self._arrived)
                    self._send_waiting()
                else:
                    self._answer_all(ClosedError("Ray was shut down under its executor"))
        except BaseException as error:
            why = error
            raise
        finally:
            self._answer_rest(why)
            self._end_actors()
            SESSION.release()
            atexit.unregister(self._at_exit)

    def _take_next(self) -> None:
        """Wait for what happens; while all are busy, no longer than to the next look for nodes."""
        patience = self._newcomers.seconds_to_look() if self._all_are_busy() else None
        try:
            event = self._inbox.get(timeout=patience)
        except Empty:
            return
        self._take(event)

    def _take_all(self) -> None:
        """What came meanwhile: jobs that wait together travel together."""
        while True:
            try:
                self._take(self._inbox.get_nowait())
            except Empty:
                return

    def _take(self, event: Any) -> None:
        if isinstance(event, Job):
            self._waiting.append(event)
        elif isinstance(event, _End):
            if event.cancel:
                self._cancel_waiting()
        else:
            subject, answer = event
            if isinstance(subject, Message):
                self._answered(subject, answer)
            elif isinstance(subject, Actor):
                if subject.post.actor is subject:
                    self._opened(subject.post, answer)
            else:
                self._newcomers.take(subject, answer, self._arrived)

    def _arrived(self, subject: Message | Actor | Look | Question, answer: Future[Any]) -> None:
        self._inbox.put((subject, answer))

    # --- sending ---

    def _send_waiting(self) -> None:
        while self._waiting:
            job = self._waiting[0]
            if not self._in_use:
                given_up = [post.given_up for post in self.posts if post.given_up is not None]
                if not self._newcomers.expected:
                    self._answer_waiting(given_up[0])
                return
            free = [
                post.actor
                for post in self._in_use
                if post.actor is not None and self._limits.leave_room(post.actor, job)
            ]
            if not free:
                return
            # A job whose actor died goes to another post, where another is free.
            actor = min(free, key=lambda each: (each.post is job.last, each.calls, each.nbytes))
            jobs = self._gathered(actor)
            if jobs:
                self._send(actor, jobs)

    def _gathered(self, actor: Actor) -> list[Job]:
        """The first that waits, and those behind it that may travel with it."""
        most = self._limits.most_together(actor, len(self._waiting), len(self._in_use))
        jobs: list[Job] = []
        nbytes = 0
        while self._waiting and len(jobs) < most:
            job = self._waiting[0]
            with_it = nbytes + job.nbytes
            if jobs and not self._limits.fit_together(actor, jobs[0], job, with_it):
                break
            self._waiting.popleft()
            if job.begin():
                jobs.append(job)
                nbytes = with_it
            else:  # it was cancelled
                self.admission.leave(job.nbytes)
        return jobs

    def _send(self, actor: Actor, jobs: Sequence[Job]) -> None:
        try:
            self._sent.add(actor.send(jobs, self._kernels, self._arrived))
        except Exception as error:  # a kernel that cannot be pickled, a store that is full
            self._refuse(jobs, error)

    # --- answers ---

    def _answered(self, message: Message, answer: Future[Any]) -> None:
        actor = message.actor
        if message not in self._sent:
            return  # it was answered when Ray was shut down
        error = answer.exception()
        gone = error is not None and actor_is_gone(error)
        if error is not None and gone:
            self._dead(actor, error)
        self._drop(message)
        if error is None:
            self._deliver(message, answer.result())
        elif gone or answer_is_lost(error):
            self._again(message.jobs, error, actor, counted=not actor.dismissed)
        else:
            self._refuse(message.jobs, error)

    def _drop(self, message: Message) -> None:
        self._sent.remove(message)
        message.actor.drop(message)

    def _deliver(self, message: Message, outcomes: Sequence[Any]) -> None:
        post = message.actor.post
        for job, outcome in zip(message.jobs, own_results(outcomes), strict=True):
            if not isinstance(outcome, Failure):
                post.answered += 1
                self.admission.leave(job.nbytes)
                job.answer(outcome)
                continue
            error = outcome.error()
            error.add_note(f"by the actor for {post.place}")
            if device_is_lost(error):
                message.actor.dismissed = True
                self._dead(message.actor, error)
                self._again([job], error, message.actor, counted=True)
            else:
                post.answered += 1
                self._refuse([job], error)

    def _refuse(self, jobs: Sequence[Job], error: BaseException) -> None:
        for job in jobs:
            self.admission.leave(job.nbytes)
            job.future.set_exception(error)

    def _again(
        self, jobs: Sequence[Job], error: BaseException, actor: Actor, *, counted: bool
    ) -> None:
        """Back to the front of those that wait; one that was tried often enough gets the error."""
        for job in reversed(jobs):
            job.last = actor.post
            job.deaths += counted
            if job.deaths >= self._tries:
                self._refuse([job], error)
            else:
                self.resent += 1
                self._waiting.appendleft(job)

    # --- actors ---

    def _dead(self, actor: Actor, error: BaseException) -> None:
        """Its other messages come back one by one, each with an error of its own."""
        post = actor.post
        if post.actor is not actor:
            return  # known already
        post.deaths += 1
        self._replace(post, error)

    def _opened(self, post: Post, answer: Future[Any]) -> None:
        error = post.opened(answer)
        if error is not None:
            self._replace(post, error)
        elif self._newcomers.joined(post):
            self.posts = (*self.posts, post)  # others read it meanwhile
            self._count_posts()

    def _replace(self, post: Post, error: BaseException) -> None:
        post.vacate()
        if post.refusals >= MOST_REFUSALS:
            post.given_up = error
            if not self._newcomers.refused(post, error):
                self._count_posts()
        elif ray.is_initialized():
            post.start(self._arrived)

    def _count_posts(self) -> None:
        """Jobs are for the best kind of devices that are left: better ones may have joined."""
        left = [post for post in self.posts if post.given_up is None]
        best = min((post.place.seat.rank for post in left), default=None)
        self._in_use = [post for post in left if post.place.seat.rank == best]
        actors = max(len(self._in_use), 1)
        self.admission.allow(self._limits.calls * actors, self._limits.nbytes * actors)

    def _all_are_busy(self) -> bool:
        """Whether there is work, and no actor without: then nodes that joined are of use."""
        actors = [post.actor for post in self._in_use]
        return self.admission.calls > 0 and not any(
            actor is not None and actor.ready and not actor.messages for actor in actors
        )

    # --- the end ---

    def _cancel_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            if job.future.cancel():
                job.begin()
                self.admission.leave(job.nbytes)
            else:  # it was sent once, and its actor died
                self._waiting.append(job)

    def _answer_waiting(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for job in waiting:
            if job.begin():
                self._refuse([job], error)
            else:
                self.admission.leave(job.nbytes)

    def _answer_all(self, error: BaseException) -> None:
        """Nothing will come any more for those that are sent, nor can others be."""
        for message in list(self._sent):
            self._drop(message)
            self._refuse(message.jobs, error)
        self._answer_waiting(error)

    def _answer_rest(self, error: BaseException) -> None:
        """Where it ends too early: also those that are admitted and not here yet."""
        self.admission.close()
        self._answer_all(error)
        while self.admission.calls:
            event = self._inbox.get()
            if isinstance(event, Job):
                self._waiting.append(event)
                self._answer_waiting(error)

    def _at_exit(self) -> None:
        self.close()
        self.join()

    def _end_actors(self) -> None:
        if not ray.is_initialized():
            return  # and with it went the actors
        self._newcomers.end()
        actors = [post.actor for post in self.posts if post.actor is not None]
        with contextlib.suppress(Exception):  # one that cannot close is killed all the same
            closing = [actor.closing() for actor in actors]
            ray.wait(closing, num_returns=len(closing), timeout=CLOSING_SECONDS)
        for actor in actors:
            actor.kill()
