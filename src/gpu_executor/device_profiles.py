"""What is known of the GPUs of a vendor, or of a driver, and cannot be asked of a device: a
`VendorProfile`.

A device without a profile of its own has the defaults. Results are the same with any of these
numbers, and a number that does not suit a device costs a few percent of the time of one call. Where
a default was measured, it was on an NVIDIA H200.
"""

from __future__ import annotations

import math

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo


@dataclass(frozen=True, slots=True)
class VendorProfile:
    """Which variants of kernels suit a device."""

    groups_extension_points: bool = False
    """Whether groups of invocations accumulate every MSM of a curve over an extension field, not
    only small ones."""
    f64_accumulation: bool = True
    """Whether points are accumulated with f64 limbs where these are faster in products."""
    bucket_cost: float = 3.4
    """The time of an addition of two sums of buckets, by groups of invocations, in mixed additions
    by single ones. It decides the window of large MSMs: 0.6 instead of 2.0 G/s (BLS12-381 G1), 1.0
    instead of 4.4 (BN254 G1)."""
    late_scalar_points: int = 1 << 19
    """Points of one MSM from which on its scalars are copied from the host after the device has
    begun to convert the points. That hides 0.3 of the 14 ms of 2^20 points of BLS12-381 G1."""
    sliced_points: int = 1 << 22
    """Points of one MSM from which on its scalars are copied in two slices: the device adds the
    points of the first slice while the host copies the scalars of the second. With fewer points the
    second set of buckets takes longer than the copy. Calls took in ms, without slices and with a
    first slice of 3/16 and of 1/4:

        BLS12-381 G1, 2^20    plain memory 12.36, 12.82, 12.82    mapped 11.90, 12.62, 12.62
        BLS12-381 G1, 2^21    plain memory 21.13, 20.97, 21.63    mapped 20.45, 20.69, 21.12
        BLS12-381 G1, 2^22    plain memory 38.31, 36.27, 36.47    mapped 35.71, 36.32, 36.55
        BN254 G1, 2^19        plain memory  4.33,     -,  4.45    mapped  4.05,     -,  4.29
        BN254 G1, 2^20        plain memory  6.92,  6.67,  6.67    mapped  6.41,  6.25,  6.38
        BN254 G1, 2^21        plain memory 11.74, 11.06, 10.58    mapped 10.86, 10.42, 10.38
        BN254 G1, 2^22        plain memory 22.06, 19.13, 18.73    mapped 19.76, 18.37, 18.41
    """
    f64_sliced_points: int = 1 << 20
    """The same for curves that accumulate with f64 limbs."""
    decoded_points: int = 32
    """Points of a trusted setup or a call of KZG from which on the GPU decodes them: it takes 4 ms
    for up to 9,288 points, and the host 0.2 ms for each."""
    kernel_copy_bytes: int = 1 << 20
    """Bytes from which on a kernel copies one device array to another: it moves 4.17 TB/s, reads
    and writes together, and the driver's own copy 0.83. A kernel copies as fast as memory is on any
    GPU. Below this size both take as long as a submission."""
    max_unrolled_limbs: float = math.inf
    """The most limbs of a number for which the driver is asked to unroll the loops over them, in
    the package's own kernels. Lavapipe must unroll all, because of `max_iterations`."""
    max_iterations: float = math.inf
    """The iterations of all loops of an invocation together after which the driver ends loops,
    without an error."""


DEFAULT = VendorProfile()
AMD = VendorProfile(groups_extension_points=True, f64_accumulation=False)
"""By the figures of RADV's compiler for navi21 and vega10 (docs/platforms.md; compiled, not run):

- Single invocations that accumulate points of BLS12-381 G2 spill 11 VGPRs into 3,072 bytes of
  scratch memory of a subgroup, and have 194 KB of code, six times the instruction cache. In groups
  they spill nothing and have 33 KB. With the time to load instructions, an addition is estimated to
  take as long on navi21 and 0.76 times as long on vega10.
- Accumulation with f64 limbs has 25,600 bytes of scratch memory of a subgroup, and the model of the
  compiler says 1.5 times the cycles of integer limbs on navi21, 1.3 times on vega10."""
SWIFTSHADER = VendorProfile(max_unrolled_limbs=4)
"""SwiftShader compiles unrolled products for seconds, and has no cache. The first MSM of 2^8 points
takes these CPU seconds of a Neoverse-N1 with all loops unrolled and with none: BLS12-381 G1 (13
limbs) 34.5 and 5.7, of which 0.2 and 0.9 do not compile; BN254 G2 (9 limbs) 28.1 and 8.3, of which
0.3 and 1.4 do not; BLS12-381 G2 minutes and 11.1. Of 8 points it takes 3.3 and 4.4 with 3 limbs,
2.3 and 3.8 with one limb. Products of 255 bits are compiled in 1.8 and 0.4 s, and each takes 0.3
and 2.7 us; the first transform of 2^12 such elements takes 8.9 and 3.7 s, others 10 and 21 ms."""
LAVAPIPE = VendorProfile(max_iterations=65_535)
PROFILES = {"AMD": AMD, "llvmpipe": LAVAPIPE}
"""By `DeviceInfo.vendor`; WebGPU says nothing else of lavapipe."""
DRIVER_PROFILES = {"SwiftShader driver": SWIFTSHADER, "llvmpipe": LAVAPIPE}
"""By `DeviceInfo.driver`."""


def get_profile(info: DeviceInfo) -> VendorProfile:
    """Return the profile of a device."""
    return DRIVER_PROFILES.get(info.driver) or PROFILES.get(info.vendor, DEFAULT)
