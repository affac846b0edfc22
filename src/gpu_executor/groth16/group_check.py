"""Whether many points of a curve are in the group of prime order, by a few random sums.

A point outside the group has a part of an order that divides the cofactor. With factors drawn below
the smallest prime p of the cofactor, the sum of multiples of the points is in the group with
probability 1 / p at most, if one of them is not. So as many sums as make 2^-128 replace a
multiplication of every point: of BN254 G2, 10 sums with factors of 14 bits take 10 additions a
point instead of 190.
"""

from __future__ import annotations

import math
import secrets

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.curves import Curve, PointArray
from gpu_executor.msm.run import run_rows

SMALLEST_PRIMES = {"bn254_g2": 10069, "bls12_381_g1": 3, "bls12_381_g2": 13}
"""The smallest prime of the cofactor of each group. BN254 G1 has the cofactor 1."""
SECURITY_BITS = 128
LEAST_POINTS = 1 << 9
"""Fewer points are multiplied one by one."""


def find_outside(group: Curve, points: DeviceArray) -> int | None:
    """The first of the affine points (n), which are on the curve, that is not in the group of prime
    order; None if all are."""
    if group.cofactor == 1 or not len(points):
        return None
    if len(points) >= LEAST_POINTS and _are_sums_inside(group, points):
        return None
    bad = np.flatnonzero(~group.in_subgroup(PointArray(group, points)))
    return int(bad[0]) if bad.size else None


def _are_sums_inside(group: Curve, points: DeviceArray) -> bool:
    """Whether all random sums are in the group."""
    device: ArrayDevice = points.storage.device
    prime = SMALLEST_PRIMES[group.name]
    sums = math.ceil(SECURITY_BITS / math.log2(prime))
    # Nobody sees the factors, so they need not resist a cryptanalyst.
    generator = np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
    dtype = np.uint16 if prime > 256 else np.uint8
    factors = generator.integers(0, prime, (sums, len(points)), dtype).astype(np.uint32)
    found = run_rows(device, group.key, points, factors, (prime - 1).bit_length())
    return bool(group.in_subgroup(PointArray(group, found)).all())
