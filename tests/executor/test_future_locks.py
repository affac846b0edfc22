"""The adapter to private attributes of `concurrent.futures.Future`. Fails on a Python release that
changes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait
from typing import Any

import pytest

from gpu_executor.executor.jobs import renew_lock
from tests.support.threads import PATIENCE, in_background


def test_futures_keep_their_condition_in_the_private_attribute() -> None:
    found = vars(Future()).get("_condition")
    assert isinstance(found, threading.Condition), (
        f"Future._condition is {found!r} in this Python release: renew_lock() in "
        "renew_lock must replace the lock of a future where it is kept now"
    )


@pytest.fixture
def held() -> Iterator[Future[Any]]:
    """A future whose lock another thread holds, as a child of fork() may find it."""
    future: Future[Any] = Future()
    has_it, released = threading.Event(), threading.Event()

    def hold() -> None:
        with future._condition:
            has_it.set()
            released.wait()

    thread, _ = in_background(hold)
    assert has_it.wait(PATIENCE)
    yield future
    released.set()
    thread.join(PATIENCE)


def test_a_future_with_a_renewed_lock_can_be_used(held: Future[Any]) -> None:
    stuck, _ = in_background(held.done)
    stuck.join(0.05)
    assert stuck.is_alive(), "Future.done() no longer takes the lock that renew_lock() replaces"
    renew_lock(held)

    def use() -> list[object]:
        called: list[object] = []
        held.add_done_callback(called.append)
        assert not held.done() and held.set_running_or_notify_cancel()
        held.set_exception(ZeroDivisionError())
        assert wait([held], PATIENCE).done == {held} == set(as_completed([held]))
        with pytest.raises(ZeroDivisionError):
            held.result()
        return called

    user, found = in_background(use)
    user.join(PATIENCE)
    assert found == [[held]]
