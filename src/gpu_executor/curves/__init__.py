"""Elliptic curves: `Curve`, arrays of points, and the named curves.

A named curve is made and checked when its name is first used, which takes milliseconds.
"""

from typing import TYPE_CHECKING, Any

from gpu_executor.curves.curve import Curve
from gpu_executor.curves.parameters import NAMES, get_named
from gpu_executor.curves.point_array import PointArray
from gpu_executor.msm.tables import PointTable

if TYPE_CHECKING:
    BLS12_377_G1: Curve
    BLS12_377_G2: Curve
    BLS12_381_G1: Curve
    BLS12_381_G2: Curve
    BN254_G1: Curve
    BN254_G2: Curve
    PALLAS: Curve
    SECP256K1: Curve
    VESTA: Curve

__all__ = [
    "BLS12_377_G1",
    "BLS12_377_G2",
    "BLS12_381_G1",
    "BLS12_381_G2",
    "BN254_G1",
    "BN254_G2",
    "PALLAS",
    "SECP256K1",
    "VESTA",
    "Curve",
    "PointArray",
    "PointTable",
]


def __getattr__(name: str) -> Any:
    """Make a named curve when its name is first used."""
    if name in NAMES:
        return get_named(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
