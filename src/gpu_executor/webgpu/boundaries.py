"""Bucket boundaries: which bucket a number of elements falls into, and the file that saves them.

Each bucket ends at a boundary. The fixed boundaries are the powers of two. Adaptive boundaries are
added to them: if more than a quarter of a bucket is padding for the observed sizes, a boundary is
placed between these sizes, where it minimizes the padding.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_executor.common.files import MAX_JSON_BYTES, parse_json, read_own_file, write_atomically

log = logging.getLogger("gpu_executor.webgpu")

SMALLEST_BUCKET = 16_384
MAX_PADDING = 0.25
"""The share of a bucket that may be padding before another boundary is added."""
SIZES_OBSERVED = 128
"""Recent sizes that are remembered for each bucket."""
MIN_SIZES = 16
"""Sizes that must be observed before a bucket is divided."""
STEPS_PER_POWER = 16
"""Learned boundaries lie at sixteenths of a power of two, so that similar loads share them."""
MAX_BOUNDARIES = 24
"""The maximum number of learned boundaries."""


def size_bucket(count: int) -> int:
    """Return the next power of two, at least 16,384."""
    return max(SMALLEST_BUCKET, 1 << max(count - 1, 0).bit_length())


class BucketBoundaries:
    """Finds the bucket of a number of elements; learns boundaries if `adaptive`. Thread-safe.

    `learned` are boundaries that an earlier process has learned.
    """

    def __init__(self, *, adaptive: bool = False, learned: Iterable[int] = ()) -> None:
        self.adaptive = adaptive
        self._learned = sorted({boundary for boundary in learned if boundary >= SMALLEST_BUCKET})
        """The learned boundaries, in addition to the powers of two."""
        self._sizes: dict[int, deque[int]] = {}
        """The sizes observed most recently, by bucket."""
        self._lock = threading.Lock()
        self.changes = 0
        """How often a boundary was added."""

    @property
    def learned(self) -> list[int]:
        """A copy of the learned boundaries, which supplement the powers of two."""
        return list(self._learned)

    def find_bucket(self, count: int) -> int:
        """Return the bucket of `count` elements; if adaptive, learn from this count."""
        if not self.adaptive:
            return size_bucket(count)
        with self._lock:
            bucket = self._find(count)
            sizes = self._sizes.setdefault(bucket, deque(maxlen=SIZES_OBSERVED))
            sizes.append(count)
            padded = count * (1 + MAX_PADDING) < bucket
            if len(sizes) >= MIN_SIZES and padded and self._divide(bucket):
                return self._find(count)
            return bucket

    def measure_padding(self) -> float:
        """Return the share of padding in the sizes observed most recently; 0 unless adaptive."""
        with self._lock:
            capacity = sum(bucket * len(sizes) for bucket, sizes in self._sizes.items())
            used = sum(sum(sizes) for sizes in self._sizes.values())
        return 1 - used / capacity if capacity else 0.0

    def _find(self, count: int) -> int:
        power = size_bucket(count)
        at = bisect.bisect_left(self._learned, count)
        return min(power, self._learned[at]) if at < len(self._learned) else power

    def _divide(self, bucket: int) -> bool:
        """Add a boundary inside a bucket if that saves enough padding; return whether it did."""
        sizes = sorted(self._sizes[bucket])
        capacity = bucket * len(sizes)
        if bucket <= SMALLEST_BUCKET or capacity - sum(sizes) <= MAX_PADDING * capacity:
            return False
        step = max(size_bucket(bucket) // STEPS_PER_POWER, 1)
        boundaries = {-(-size // step) * step for size in sizes} - {bucket}

        def capacity_with(boundary: int) -> int:
            below = bisect.bisect_right(sizes, boundary)
            return below * boundary + (len(sizes) - below) * bucket

        best = min((each for each in boundaries if each < bucket), key=capacity_with, default=None)
        if best is None or best < SMALLEST_BUCKET:
            return False
        if capacity_with(best) > (1 - MAX_PADDING / 2) * capacity:
            return False
        bisect.insort(self._learned, best)
        if len(self._learned) > MAX_BOUNDARIES:
            others = [boundary for boundary in self._learned if boundary != best]
            self._learned.remove(min(others, key=lambda each: len(self._sizes.get(each, ()))))
        self._sizes.pop(bucket)  # only later sizes decide whether to divide the bucket again
        self.changes += 1
        return True


@dataclass(frozen=True, slots=True)
class BucketHistory:
    """The data that a process saves for the next one: learned boundaries, and the buckets it used.

    Pipelines are not saved: wgpu has pipeline caches, but the wgpu-native under wgpu-py 0.32
    creates every pipeline without one (gfx-rs/wgpu-native, pull request 618).
    """

    boundaries: list[int] = field(default_factory=list)
    used: dict[str, list[int]] = field(default_factory=dict)
    """Bucket sizes by the name of a kernel of this package."""


def history_path(folder: Path, device: str) -> Path:
    """Return the path of an adapter's history file."""
    return folder / f"webgpu-{hashlib.sha256(device.encode()).hexdigest()[:16]}.json"


def read_history(path: Path) -> BucketHistory:
    """Return the saved history; an empty one if the file is missing or invalid."""
    try:
        return _parse_history(parse_json(read_own_file(path, MAX_JSON_BYTES).decode()))
    except FileNotFoundError:
        return BucketHistory()
    except OSError as error:
        log.warning("the bucket history was not read: %s", error)
        return BucketHistory()
    except ValueError as error:
        log.warning("%s is not a valid bucket history and will be replaced: %s", path, error)
        return BucketHistory()


def write_history(path: Path, history: BucketHistory) -> None:
    """Write a history atomically; log a warning if that fails."""
    content = json.dumps({"borders": history.boundaries, "used": history.used}, indent=1)
    try:
        write_atomically(path, content.encode())
    except OSError as error:
        log.warning("the bucket history was not written: %s", error)


def _parse_history(content: Any) -> BucketHistory:
    # Files call the boundaries "borders", their name when the first files were written.
    if not isinstance(content, dict) or content.keys() != {"borders", "used"}:
        raise ValueError("the keys are not 'borders' and 'used'")
    used = content["used"]
    if not isinstance(used, dict):
        raise ValueError("'used' is not an object of sizes by kernel")
    return BucketHistory(
        _parse_sizes(content["borders"]),
        {str(name): _parse_sizes(sizes) for name, sizes in used.items()},
    )


def _parse_sizes(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(each) is int and each > 0 for each in values):
        raise ValueError(f"{values!r} is not a list of positive sizes")
    return sorted(set(values))
