"""`CurveKey`: a short Weierstrass curve in numbers, as host code and kernels take it."""

from dataclasses import dataclass
from functools import cached_property

from gpu_executor.primes.prime import Prime


@dataclass(frozen=True)
class CurveKey:
    """The curve y^2 = x^3 + a x + b over a prime field or an extension of it.

    A coordinate is c0 + c1 u + ... with `degree` coefficients modulo the prime and
    u^degree = nonresidue. Of degree 1, a coordinate is c0 and `nonresidue` is 0.
    """

    prime: Prime
    degree: int
    nonresidue: int
    a: tuple[int, ...]
    """The coefficients of a, below the prime: as many as the degree says."""
    b: tuple[int, ...]
    order: int
    """The order of the group of points that the curve is used for, a prime."""

    @cached_property
    def coordinate_shape(self) -> tuple[int, ...]:
        """The axes of one coordinate in memory: its coefficients, then the columns of each."""
        coefficients = () if self.degree == 1 else (self.degree,)
        return (*coefficients, *self.prime.element_shape)
