"""What came of all that was asked: counts, and in words whatever should not have been."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from typing import Literal

Fate = Literal["right", "refused", "cancelled", "gave up"]
FATES: tuple[Fate, ...] = ("right", "refused", "cancelled", "gave up")
"""A result that is right; a bad element that was refused as it should be; a job that was cancelled
in time; one that met so many faults that its executor stopped trying."""
Trouble = Literal["lost", "wrong", "answered twice", "failed", "growth"]
TROUBLES: tuple[Trouble, ...] = ("lost", "wrong", "answered twice", "failed", "growth")
MOST_DESCRIBED = 20


@dataclass(slots=True)
class Asked:
    """What came of one way of asking."""

    jobs: int = 0
    elements: int = 0
    fates: Counter[Fate] = field(default_factory=Counter)


class Tally:
    """Safe from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked: dict[str, Asked] = defaultdict(Asked)
        """By way."""
        self.troubles: Counter[Trouble] = Counter()
        self.described: list[str] = []
        """The first of them, in words."""

    def count(self, way: str, elements: int, fate: Fate | None) -> None:
        """A job; None: one that is in trouble."""
        with self._lock:
            asked = self.asked[way]
            asked.jobs += 1
            asked.elements += elements
            if fate is not None:
                asked.fates[fate] += 1

    def trouble(self, kind: Trouble, words: str) -> None:
        with self._lock:
            self.troubles[kind] += 1
            if len(self.described) < MOST_DESCRIBED:
                self.described.append(f"{kind}: {words}")

    def thread_died(self, details: threading.ExceptHookArgs) -> None:
        """For `threading.excepthook`. A future that is given a second answer raises in the thread
        that gives it."""
        name = "a thread" if details.thread is None else details.thread.name
        twice = issubclass(details.exc_type, InvalidStateError)
        self.trouble(
            "answered twice" if twice else "failed",
            f"{name} died of {details.exc_type.__name__}: {details.exc_value}",
        )

    @property
    def jobs(self) -> int:
        return sum(asked.jobs for asked in self.asked.values())
