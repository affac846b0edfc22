"""What is known of the GPUs of a vendor and cannot be asked of a device: a `VendorProfile`.

A device without a profile of its own has the defaults, which are right everywhere.
"""

from __future__ import annotations

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


DEFAULT = VendorProfile()
AMD = VendorProfile(groups_extension_points=True, f64_accumulation=False)
"""By the figures of RADV's compiler for navi21 and vega10 (docs/platforms.md; compiled, not run):

- Single invocations that accumulate points of BLS12-381 G2 spill 11 VGPRs into 3,072 bytes of
  scratch memory of a subgroup, and have 194 KB of code, six times the instruction cache. In groups
  they spill nothing and have 33 KB. With the time to load instructions, an addition is estimated to
  take as long on navi21 and 0.76 times as long on vega10.
- Accumulation with f64 limbs has 25,600 bytes of scratch memory of a subgroup, and the model of the
  compiler says 1.5 times the cycles of integer limbs on navi21, 1.3 times on vega10."""
PROFILES = {"AMD": AMD}
"""By `DeviceInfo.vendor`."""


def get_profile(info: DeviceInfo) -> VendorProfile:
    """Return the profile of a device."""
    return PROFILES.get(info.vendor, DEFAULT)
