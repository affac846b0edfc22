"""Rates: how fast each device was seen to work, kernel by kernel, the last jobs counting most."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from gpu_executor.executor.dealing import shares
from gpu_executor.kernel import Kernel

# What calls count for beside the bytes that they read, and what they count for together: else who
# gets less would look slower for it, and get less still. About 5 and 100 us on lavapipe.
PER_CALL, PER_TURN = 1 << 13, 1 << 17
FADING = 0.7
"""What earlier work counts for, with each piece of work after it."""
REMEMBERED = 256
"""Kernels."""


class Rates:
    """Of devices by their numbers. Safe from several threads."""

    def __init__(self, foreseen: Sequence[float | None]) -> None:
        """`foreseen` are the devices' rates before anything ran, by their calibration."""
        self._foreseen = foreseen
        self._seen: dict[Kernel | None, list[tuple[float, float]]] = {}
        """Bytes and seconds of each device; under None those of all kernels."""
        self._left_alone: set[int] = set()
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

    def leave_alone(self, who: int) -> None:
        """A device has failed: its share is nothing."""
        with self._lock:
            self._left_alone.add(who)
            self.able = len(self._foreseen) - len(self._left_alone)

    def is_able_beside(self, some: frozenset[int]) -> bool:
        """Whether a device has not failed that is none of these."""
        return len(self._left_alone | some) < len(self._foreseen)

    def shares(self, kernel: Kernel) -> list[float]:
        """What part of a job each device is dealt.

        As this kernel went; or as all kernels did, or are foreseen to, where that is known of more
        devices.
        """
        with self._lock:
            ways = [self._measured(kernel), self._measured(None), self._foreseen]
            best = max(ways, key=lambda rates: sum(rate is not None for rate in rates))
            return shares(
                [0.0 if who in self._left_alone else rate for who, rate in enumerate(best)]
            )

    def _measured(self, key: Kernel | None) -> list[float | None]:
        seen = self._seen.get(key, [(0.0, 0.0)] * len(self._foreseen))
        return [work / took if took else None for work, took in seen]
