"""How a card multiplies elements of a prime."""

from __future__ import annotations

from gpu_executor.dispatch import ArrayDevice
from gpu_executor.kernels.families import family
from gpu_executor.primes import Prime


def by_doubles(device: ArrayDevice, prime: Prime) -> bool:
    """Whether products are made of doubles. For one-word primes nobody asks the card, which has to
    try it out once."""
    return family(prime) == "wide" and device.f64_limbs
