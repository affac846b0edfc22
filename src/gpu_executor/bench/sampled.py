"""A figure that keeps the samples that it was computed from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any, Self


class Sampled(float):
    """A number, and the samples behind it in the same unit.

    It is a float everywhere. Multiplied or divided by a number, it converts its samples too, so a
    time in seconds becomes a time in milliseconds or a rate with all samples. Other arithmetic
    returns a plain float.
    """

    samples: tuple[float, ...]

    def __new__(cls, value: float, samples: Iterable[float]) -> Self:
        self = super().__new__(cls, value)
        self.samples = tuple(map(float, samples))
        return self

    @classmethod
    def median(cls, samples: Iterable[float]) -> Self:
        """The median of the samples."""
        taken = tuple(samples)
        return cls(statistics.median(taken), taken)

    @classmethod
    def fastest(cls, samples: Iterable[float]) -> Self:
        """The least of the samples."""
        taken = tuple(samples)
        return cls(min(taken), taken)

    def __mul__(self, other: float, /) -> float:
        return self._convert(other, lambda value: value * other)

    __rmul__ = __mul__

    def __truediv__(self, other: float, /) -> float:
        return self._convert(other, lambda value: value / other)

    def __rtruediv__(self, other: float, /) -> float:
        """A rate. A sample of 0, below the resolution of the clock, has no rate and is left out."""
        samples = (other / value for value in self.samples if value)
        return Sampled(other / float(self), samples)

    def _convert(self, other: float, function: Callable[[float], float]) -> float:
        """Apply the function to the number and its samples; to the number alone if the other
        operand has samples too, for then the samples of both do not belong together."""
        value = function(float(self))
        if isinstance(other, Sampled):
            return float(value)
        return Sampled(value, map(function, self.samples))

    def __deepcopy__(self, _memo: dict[int, Any]) -> Sampled:
        return self  # it does not change; `dataclasses.asdict` copies the values of fields

    def __reduce__(self) -> tuple[type[Sampled], tuple[float, tuple[float, ...]]]:
        return type(self), (float(self), self.samples)
