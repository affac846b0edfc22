"""Borders: which bucket a number of elements falls into, fixed or following the load.

At first a bucket ends at each power of two. Where the sizes that come waste more than a quarter of
a bucket's room, a border is put among them: at the size that makes the padding least.
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Iterable

SMALLEST_BUCKET = 16_384
WASTE = 0.25
"""Of a bucket's room, from which another border is worth it."""
WATCHED, ENOUGH = 128, 16
"""Sizes that a bucket is judged by, and from how many on."""
STEPS = 16
"""Borders lie at sixteenths of a power of two, so that near loads find the same ones."""
MOST_BORDERS = 24


def size_bucket(count: int) -> int:
    """The next power of two, 16,384 at least."""
    return max(SMALLEST_BUCKET, 1 << max(count - 1, 0).bit_length())


class Borders:
    """Safe from several threads."""

    def __init__(self, *, adaptive: bool = False, known: Iterable[int] = ()) -> None:
        self.adaptive = adaptive
        self._own = sorted({border for border in known if border >= SMALLEST_BUCKET})
        """Borders beside the powers of two."""
        self._sizes: dict[int, deque[int]] = {}
        """What came lately, by bucket."""
        self._lock = threading.Lock()
        self.moves = 0
        """How often a border was put or taken away."""

    @property
    def own(self) -> list[int]:
        """The borders that the load has made."""
        return list(self._own)

    def bucket(self, count: int) -> int:
        """The bucket of that many elements."""
        if not self.adaptive:
            return size_bucket(count)
        with self._lock:
            bucket = self._bucket(count)
            sizes = self._sizes.setdefault(bucket, deque(maxlen=WATCHED))
            sizes.append(count)
            if len(sizes) >= ENOUGH and count * (1 + WASTE) < bucket and self._divide(bucket):
                return self._bucket(count)
            return bucket

    def waste(self) -> float:
        """The share of padding in all that came lately."""
        with self._lock:
            room = sum(bucket * len(sizes) for bucket, sizes in self._sizes.items())
            used = sum(sum(sizes) for sizes in self._sizes.values())
        return 1 - used / room if room else 0.0

    def _bucket(self, count: int) -> int:
        power = size_bucket(count)
        at = bisect.bisect_left(self._own, count)
        return min(power, self._own[at]) if at < len(self._own) else power

    def _divide(self, bucket: int) -> bool:
        """Put a border into a bucket where that is worth it."""
        sizes = sorted(self._sizes[bucket])
        room = bucket * len(sizes)
        if bucket <= SMALLEST_BUCKET or room - sum(sizes) <= WASTE * room:
            return False
        step = max(size_bucket(bucket) // STEPS, 1)
        borders = {-(-size // step) * step for size in sizes} - {bucket}

        def padded(border: int) -> int:
            below = bisect.bisect_right(sizes, border)
            return below * border + (len(sizes) - below) * bucket

        best = min((each for each in borders if each < bucket), key=padded, default=None)
        if best is None or best < SMALLEST_BUCKET or padded(best) > (1 - WASTE / 2) * room:
            return False
        bisect.insort(self._own, best)
        if len(self._own) > MOST_BORDERS:
            others = [border for border in self._own if border != best]
            self._own.remove(min(others, key=lambda each: len(self._sizes.get(each, ()))))
        self._sizes.pop(bucket)  # judged anew, by what comes from now on
        self.moves += 1
        return True
