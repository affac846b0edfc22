"""A caller: a thread's worth of jobs, drawn, asked for and checked one after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from gpu_executor.errors import OutOfMemoryError, VulkanError
from gpu_executor.executor import GpuExecutor
from gpu_executor.soak.card import Card
from gpu_executor.soak.faults import Faults
from gpu_executor.soak.mix import FIELD_KERNELS, KERNELS, LARGEST, Call, Draw, draw_call, size
from gpu_executor.soak.tally import Tally
from gpu_executor.soak.ways import WAYS, AnsweredThough, Cancelled, Unanswered, Way

ON_CARD = "fields on the card"
CARD_SHARE = 0.1
BAD_SHARE = 0.03
HELD = 32
"""Results that are kept for a while and then looked at again: a device that writes to an array
after it was given away is found out."""
ENOUGH = 2
"""Faults during a job's life that may be too many for it: one alone never is."""


class Caller:
    """Its draws follow from its seed; what other callers do meanwhile does not."""

    def __init__(
        self, draw: Draw, executors: Sequence[GpuExecutor], faults: Faults, tally: Tally
    ) -> None:
        self._draw, self._executors = draw, executors
        self._faults, self._tally = faults, tally
        self._held: deque[tuple[str, Call, Any]] = deque()
        self.card = Card()
        self.doing = "nothing"

    def work(self, until: float) -> None:
        """Until that moment of the monotonic clock."""
        while time.monotonic() < until:
            self._faults.pass_by()
            if self._draw.random() < CARD_SHARE:
                self._compute_on_card()
            else:
                self._ask()

    def look_again(self, keep: int = 0) -> None:
        """Check held results a second time, and let them go, all or all but some."""
        while len(self._held) > keep:
            way, call, result = self._held.popleft()
            wrong = call.wrong(result)
            if wrong is not None:
                self._tally.trouble("wrong", f"{way}, some time after it was right: {wrong}")

    def _ask(self) -> None:
        draw = self._draw
        way = WAYS[draw.integers(len(WAYS))]
        executor = self._executors[int(draw.integers(len(self._executors)))]
        calls = self._calls(way)
        self.doing = f"{way.name} of {len(calls)} on {executor!r}"
        before = self._faults.count
        for call, outcome in way.ask(executor, calls, draw):
            self._judge(way.name, executor, call, outcome, self._faults.count - before)

    def _calls(self, way: Way) -> list[Call]:
        draw = self._draw
        number = size(draw, way.most)
        name = str(draw.choice(KERNELS))
        calls = []
        for _ in range(number):
            bad = way.mixed and draw.random() < BAD_SHARE
            if way.mixed and draw.random() < 0.2:
                name = str(draw.choice(KERNELS))
            chosen = str(draw.choice(FIELD_KERNELS)) if bad else name
            calls.append(draw_call(draw, chosen, LARGEST // number, bad=bad))
        return calls

    def _judge(
        self, way: str, executor: GpuExecutor, call: Call, outcome: Any, faults: int
    ) -> None:
        where = f"{way} on {executor!r}"
        if isinstance(outcome, Cancelled):
            self._tally.count(way, call.elements, "cancelled")
            return
        if isinstance(outcome, Unanswered | AnsweredThough):
            self._tally.count(way, call.elements, None)
            lost = isinstance(outcome, Unanswered)
            words = "no answer" if lost else "an answer though it was cancelled"
            kind = call.kernel.name
            self._tally.trouble("lost" if lost else "answered twice", f"{where}: {words}, {kind}")
            return
        wrong = call.wrong(outcome)
        if wrong is None:
            refused = isinstance(outcome, Exception)
            self._tally.count(way, call.elements, "refused" if refused else "right")
            if not refused:
                self._held.append((way, call, outcome))
                self.look_again(HELD)
            return
        if isinstance(outcome, VulkanError | OutOfMemoryError) and (
            faults >= ENOUGH or _has_failed(executor)
        ):
            self._tally.count(way, call.elements, "gave up")
            return
        self._tally.count(way, call.elements, None)
        failed = isinstance(outcome, BaseException)
        self._tally.trouble("failed" if failed else "wrong", f"{where}, {faults} faults: {wrong}")

    def _compute_on_card(self) -> None:
        self.doing = ON_CARD
        elements, wrong = self.card.chain(self._draw)
        self._tally.count(ON_CARD, elements, None if wrong else "right")
        if wrong:
            self._tally.trouble("wrong", wrong)


def _has_failed(executor: GpuExecutor) -> bool:
    """Whether none of its devices will do any more."""
    return all(device.failed for device in executor.stats().devices)
