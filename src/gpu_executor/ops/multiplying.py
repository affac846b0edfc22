"""How a card multiplies elements of a prime."""

from __future__ import annotations

from gpu_executor.dispatch import Card
from gpu_executor.kernels.families import family
from gpu_executor.primes import Prime


def by_doubles(card: Card, prime: Prime) -> bool:
    """Whether products are made of doubles. For one-word primes nobody asks the card, which has to
    try it out once."""
    return family(prime) == "wide" and card.doubles
