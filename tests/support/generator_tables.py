"""Tables of multiples of the generators, which the setups of keys on a device share in tests.

A setup makes one for each group: 2^13 points, which take a software device 3 to 5 seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import gpu_executor as gx
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.msm.fixed_base import FixedBase
from gpu_executor.ops.host_points import Point
from gpu_executor.primes.curve_key import CurveKey

_tables: dict[CurveKey, FixedBase] = {}


@contextmanager
def share_tables(gpu: gx.PersistentVulkanBackend) -> Iterator[None]:
    """Keep the tables that setups make on this backend, for the next setups on it."""

    def make_once(device: ArrayDevice, curve: CurveKey, base: Point) -> FixedBase:
        if device is not gpu.array_device:
            return FixedBase(device, curve, base)
        if curve not in _tables:
            _tables[curve] = FixedBase(device, curve, base)
        return _tables[curve]

    with pytest.MonkeyPatch.context() as patched:
        # The package has a function of the module's name.
        patched.setattr(sys.modules["gpu_executor.groth16.setup"], "FixedBase", make_once)
        yield
    forget_tables()


def forget_tables() -> None:
    """Free their memory; the next setup makes them again."""
    _tables.clear()
