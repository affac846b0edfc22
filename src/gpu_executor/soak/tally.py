"""Counts of the outcomes of all calls, with descriptions of the defects."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from concurrent.futures import InvalidStateError
from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["right", "refused", "cancelled", "gave up"]
VERDICTS: tuple[Verdict, ...] = ("right", "refused", "cancelled", "gave up")
"""The result was right; an invalid element was refused, as it must be; the job was cancelled before
it ran; the executor gave up after several injected faults."""
Defect = Literal["lost", "wrong", "answered twice", "failed", "growth"]
DEFECTS: tuple[Defect, ...] = ("lost", "wrong", "answered twice", "failed", "growth")
"""No result came; the result was wrong; a future was completed twice, or after it was cancelled;
an unexpected exception was raised; memory or the number of Vulkan objects grew."""
MAX_DESCRIPTIONS = 20


@dataclass(slots=True)
class CallCounts:
    """Counts of the calls by one method."""

    jobs: int = 0
    elements: int = 0
    verdicts: Counter[Verdict] = field(default_factory=Counter)


class Tally:
    """Counts calls and defects. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: dict[str, CallCounts] = defaultdict(CallCounts)
        """By the name of the call method."""
        self.defects: Counter[Defect] = Counter()
        self.descriptions: list[str] = []
        """The first `MAX_DESCRIPTIONS` defects in words."""

    def count(self, method: str, elements: int, verdict: Verdict | None) -> None:
        """Count one call; `verdict` is None for a call with a defect, which `report` counts."""
        with self._lock:
            counts = self.calls[method]
            counts.jobs += 1
            counts.elements += elements
            if verdict is not None:
                counts.verdicts[verdict] += 1

    def report(self, defect: Defect, description: str) -> None:
        """Count a defect and keep its description."""
        with self._lock:
            self.defects[defect] += 1
            if len(self.descriptions) < MAX_DESCRIPTIONS:
                self.descriptions.append(f"{defect}: {description}")

    def report_thread_death(self, details: threading.ExceptHookArgs) -> None:
        """Report an exception that ended a thread; a `threading.excepthook`. Completing a future
        twice raises such an exception.
        """
        name = "a thread" if details.thread is None else details.thread.name
        twice = issubclass(details.exc_type, InvalidStateError)
        self.report(
            "answered twice" if twice else "failed",
            f"{name} died of {details.exc_type.__name__}: {details.exc_value}",
        )

    @property
    def jobs(self) -> int:
        return sum(counts.jobs for counts in self.calls.values())
