"""Work stealing: how the units of a shared job are split among devices.

Each device is assigned a contiguous range of units, in proportion to its measured rate. A device
takes half of its remaining range at a time, so that other devices can still steal the rest. A
device without units steals from the device with the longest remaining range.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import accumulate

from gpu_executor.kernel import Kernel


def compute_shares(rates: Sequence[float | None]) -> list[float]:
    """Shares that sum to 1, in proportion to the rates.

    A rate of None is unknown and counts as the mean of the known rates. A rate of 0 gets no share,
    unless all rates are 0.
    """
    known = [rate for rate in rates if rate]
    mean = sum(known) / len(known) if known else 1.0
    filled = [mean if rate is None else rate for rate in rates]
    whole = sum(filled)
    return [rate / whole for rate in filled] if whole else [1 / len(rates)] * len(rates)


class WorkSplit:
    """The units of one job, split among devices. Not thread-safe.

    Units and devices are numbered from 0.
    """

    def __init__(self, units: int, shares: Sequence[float]) -> None:
        """`shares` has one entry for each device; the entries sum to 1."""
        ends = [min(round(units * share), units) for share in accumulate(shares)]
        self._ranges = [range(first, end) for first, end in zip([0, *ends], ends, strict=False)]
        self.remaining = units
        """Units that no device has taken."""

    def take(self, device_index: int, shares: Sequence[float]) -> range:
        """The next units for a device. Empty when all units are taken, or when stealing from a
        faster device would not pay."""
        if not self._ranges[device_index]:
            self._steal(device_index, shares)
        own = self._ranges[device_index]
        half = -(-len(own) // 2)
        self._ranges[device_index] = own[half:]
        self.remaining -= half
        return own[:half]

    def _steal(self, thief: int, shares: Sequence[float]) -> None:
        """Move the end of the longest range to the thief, so that both finish at the same time."""
        victim = max(range(len(self._ranges)), key=lambda index: len(self._ranges[index]))
        units, thief_share, victim_share = self._ranges[victim], shares[thief], shares[victim]
        if len(units) * thief_share < victim_share:
            return  # the thief needs longer for one unit than the victim for all of them
        kept = int(len(units) * victim_share / (thief_share + victim_share)) if victim_share else 0
        self._ranges[victim], self._ranges[thief] = units[:kept], units[kept:]


# The fixed costs of a call and of a batch, in bytes. Without them a device that gets small batches
# would look slow and get smaller ones still. About 5 and 100 us on lavapipe.
CALL_COST_BYTES, BATCH_COST_BYTES = 1 << 13, 1 << 17
DECAY = 0.7
"""The weight of earlier measurements is multiplied by this with each new one."""
MAX_KERNELS = 256
"""Kernels whose rates are kept."""


class DeviceRates:
    """The measured rate of each device, by kernel, with exponential decay. Thread-safe."""

    def __init__(self, calibrated: Sequence[float | None]) -> None:
        """`calibrated` are the devices' rates from their calibrations, where there are any."""
        self._calibrated = calibrated
        self._measured: dict[Kernel | None, list[tuple[float, float]]] = {}
        """Decayed bytes and seconds of each device; the key None is for all kernels."""
        self._quarantined: set[int] = set()
        self._lock = threading.Lock()
        self.usable = len(calibrated)
        """The number of devices that are not quarantined."""

    def record(
        self, device_index: int, kernel: Kernel, calls: int, nbytes: int, seconds: float
    ) -> None:
        """Add a measurement: a device ran a batch of calls that read `nbytes` in all."""
        work = nbytes + calls * CALL_COST_BYTES + BATCH_COST_BYTES
        with self._lock:
            for key in (kernel, None):
                measured = self._measured.setdefault(key, [(0.0, 0.0)] * len(self._calibrated))
                before, took = measured[device_index]
                measured[device_index] = (before * DECAY + work, took * DECAY + seconds)
            if len(self._measured) > MAX_KERNELS:
                self._measured.pop(next(key for key in self._measured if key not in (kernel, None)))

    def quarantine(self, device_index: int) -> None:
        """Set the share of a failed device to 0."""
        with self._lock:
            self._quarantined.add(device_index)
            self.usable = len(self._calibrated) - len(self._quarantined)

    def has_usable_besides(self, device_indices: frozenset[int]) -> bool:
        """Whether there is a usable device that is not in `device_indices`."""
        return len(self._quarantined | device_indices) < len(self._calibrated)

    def compute_shares(self, kernel: Kernel) -> list[float]:
        """The share of a job that each device gets.

        The rates are those of this kernel, of all kernels, or of the calibrations: the first of
        these that is known for the most devices.
        """
        with self._lock:
            candidates = [self._compute_rates(kernel), self._compute_rates(None), self._calibrated]
            best = max(candidates, key=lambda rates: sum(rate is not None for rate in rates))
            return compute_shares(
                [0.0 if index in self._quarantined else rate for index, rate in enumerate(best)]
            )

    def _compute_rates(self, key: Kernel | None) -> list[float | None]:
        """Bytes per second of each device."""
        measured = self._measured.get(key, [(0.0, 0.0)] * len(self._calibrated))
        return [work / took if took else None for work, took in measured]
