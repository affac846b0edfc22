"""Dealing: units of work to devices in proportion to their rates, and again when one falls behind.

Every device gets a run of neighbouring units and takes half of what is left of it at a time, so
that the end of it can still be had by others: whoever is done takes from the one who has most left.

DeviceRates: how fast each device was seen to work, kernel by kernel, the last jobs counting most.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate

from gpu_executor.kernel import Kernel


def compute_shares(rates: Sequence[float | None]) -> list[float]:
    """Parts of one, in proportion to rates; None is not known yet and counts like the others' mean.

    A rate of 0 gets nothing, unless all have it.
    """
    known = [rate for rate in rates if rate]
    mean = sum(known) / len(known) if known else 1.0
    filled = [mean if rate is None else rate for rate in rates]
    whole = sum(filled)
    return [rate / whole for rate in filled] if whole else [1 / len(rates)] * len(rates)


class WorkSplit:
    """Units 0, 1, ... among devices, which are numbers too. For one thread at a time."""

    def __init__(self, units: int, parts: Sequence[float]) -> None:
        """`parts` are the devices' shares of one."""
        ends = [min(round(units * part), units) for part in accumulate(parts)]
        self._runs = [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]
        self.left = units
        """Units that nobody has taken."""

    def take(self, who: int, parts: Sequence[float]) -> range:
        """The next units for a device; none when all are taken, or better left to others."""
        if not self._runs[who]:
            self._steal(who, parts)
        run = self._runs[who]
        half = -(-len(run) // 2)
        self._runs[who] = run[half:]
        self.left -= half
        return run[:half]

    def _steal(self, thief: int, parts: Sequence[float]) -> None:
        """From the end of the longest run, so much that both are done with it at the same time."""
        victim = max(range(len(self._runs)), key=lambda each: len(self._runs[each]))
        run, own, other = self._runs[victim], parts[thief], parts[victim]
        if len(run) * own < other:
            return  # it would take longer for one unit than the other does for all of them
        kept = int(len(run) * other / (own + other)) if other else 0
        self._runs[victim], self._runs[thief] = run[:kept], run[kept:]


# What calls count for beside the bytes that they read, and what they count for together: else who
# gets less would look slower for it, and get less still. About 5 and 100 us on lavapipe.
PER_CALL, PER_TURN = 1 << 13, 1 << 17
FADING = 0.7
"""What earlier work counts for, with each piece of work after it."""
REMEMBERED = 256
"""Kernels."""


class DeviceRates:
    """Of devices by their numbers. Safe from several threads."""

    def __init__(self, foreseen: Sequence[float | None]) -> None:
        """`foreseen` are the devices' rates before anything ran, by their calibration."""
        self._foreseen = foreseen
        self._seen: dict[Kernel | None, list[tuple[float, float]]] = {}
        """Bytes and seconds of each device; under None those of all kernels."""
        self._quarantined: set[int] = set()
        self._lock = threading.Lock()
        self.able = len(foreseen)
        """How many devices have not failed."""

    def note(self, who: int, kernel: Kernel, calls: int, nbytes: int, seconds: float) -> None:
        """A device has run calls that read that many bytes, together."""
        work = nbytes + calls * PER_CALL + PER_TURN
        with self._lock:
            for key in (kernel, None):
                seen = self._seen.setdefault(key, [(0.0, 0.0)] * len(self._foreseen))
                before, took = seen[who]
                seen[who] = (before * FADING + work, took * FADING + seconds)
            if len(self._seen) > REMEMBERED:
                self._seen.pop(next(key for key in self._seen if key not in (kernel, None)))

    def quarantine(self, who: int) -> None:
        """A device has failed: its share is nothing."""
        with self._lock:
            self._quarantined.add(who)
            self.able = len(self._foreseen) - len(self._quarantined)

    def is_able_beside(self, some: frozenset[int]) -> bool:
        """Whether a device has not failed that is none of these."""
        return len(self._quarantined | some) < len(self._foreseen)

    def compute_shares(self, kernel: Kernel) -> list[float]:
        """What part of a job each device is dealt.

        As this kernel went; or as all kernels did, or are foreseen to, where that is known of more
        devices.
        """
        with self._lock:
            ways = [self._measured(kernel), self._measured(None), self._foreseen]
            best = max(ways, key=lambda rates: sum(rate is not None for rate in rates))
            return compute_shares(
                [0.0 if who in self._quarantined else rate for who, rate in enumerate(best)]
            )

    def _measured(self, key: Kernel | None) -> list[float | None]:
        seen = self._seen.get(key, [(0.0, 0.0)] * len(self._foreseen))
        return [work / took if took else None for work, took in seen]
