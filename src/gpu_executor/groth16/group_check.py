"""Whether many points of a curve are in the group of prime order, by a few random sums.

A point outside the group has a part whose order has a prime of the cofactor. If one of the points
is outside, a sum of random multiples of all of them is in the group only if the factor of that
point has one certain value modulo that prime. With uniform factors of b bits, the most probable
value modulo the smallest prime p has the probability ceil(2^b / p) / 2^b. As many sums as make
2^-128 replace a multiplication of every point: of BN254 G2, 10 sums with factors of 16 bits take 10
additions a point instead of 190.
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
    dtype = np.dtype(np.uint16 if prime > 256 else np.uint8)
    sums = count_sums(prime, 8 * dtype.itemsize)
    # Nobody sees the factors, so they need not resist a cryptanalyst.
    source, count = np.random.SFC64(secrets.randbits(256)), sums * len(points)
    drawn = source.random_raw(-(-count * dtype.itemsize // 8)).view(dtype)[:count]
    factors = drawn.astype(np.uint32).reshape(sums, len(points))
    found = run_rows(device, group.key, points, factors, 8 * dtype.itemsize)
    return bool(group.in_subgroup(PointArray(group, found)).all())


def count_sums(prime: int, bits: int) -> int:
    """The sums with factors of so many bits that find a point outside the group, whose cofactor has
    the smallest prime `prime`."""
    most_probable = -(-(1 << bits) // prime)
    return math.ceil(SECURITY_BITS / (bits - math.log2(most_probable)))
