"""What is known of the GPUs of a vendor, or of a driver, and cannot be asked of a device: a
`VendorProfile`.

A device without a profile of its own has the defaults, which are right everywhere.
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
    max_unrolled_limbs: float = math.inf
    """The most limbs of a number for which the driver is asked to unroll the loops over them, in
    the package's own kernels. Lavapipe must unroll all: it ends the loops of an invocation after
    65,535 iterations in total."""


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
PROFILES = {"AMD": AMD}
"""By `DeviceInfo.vendor`."""
DRIVER_PROFILES = {"SwiftShader driver": SWIFTSHADER}
"""By `DeviceInfo.driver`."""


def get_profile(info: DeviceInfo) -> VendorProfile:
    """Return the profile of a device."""
    return DRIVER_PROFILES.get(info.driver) or PROFILES.get(info.vendor, DEFAULT)
