"""Whether a device multiplies large primes' elements faster as doubles: tried, not looked up.

Some GPUs have as many units for doubles as for integers, most have few, and Vulkan does not say
which. Nor does it promise that fma() rounds once, which those products rely on. The first product
of a large prime took an NVIDIA H200 0.26 s with all that is made and tried for it, the next 0.5 ms.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from gpu_executor.dispatch import Dispatch
from gpu_executor.kernels.scans import scan_kernel
from gpu_executor.primes import BLS12_381_FR, words

if TYPE_CHECKING:
    from gpu_executor.vulkan.on_card import CardArrays

NEEDED = frozenset({"shaderInt64", "shaderFloat64", "shaderRoundingModeRTZFloat64"})
POINTS, COEFFICIENTS = 1 << 17, 256
"""Of a polynomial with so many coefficients, evaluated at so many points: 34 million products, each
but the first of a point behind another."""
DIFFERENT = 1 << 11
TURNS = 5


def doubles_pay(cards: CardArrays) -> bool:
    """Whether values of a polynomial come out the same by doubles as by integers, and sooner."""
    if not cards.info.features >= NEEDED:
        return False
    prime = BLS12_381_FR
    kernels = [scan_kernel(prime, "evaluate", doubles=doubles) for doubles in (False, True)]
    draw = np.random.default_rng(1)
    drawn = [int.from_bytes(draw.bytes(31), "little") for _ in range(DIFFERENT)]
    drawn[:3] = 0, 1, prime.modulus - 1
    some = words.from_ints(prime, drawn)
    with cards.not_recorded():
        coefficients = cards.put(some[-COEFFICIENTS:])
        points = cards.put(np.tile(some, (POINTS // DIFFERENT, 1)))
        results = [cards.empty(points.shape, points.dtype) for _ in kernels]
        best = [float("inf")] * len(kernels)
        for _ in range(TURNS):
            for index, (kernel, result) in enumerate(zip(kernels, results, strict=True)):
                arrays = coefficients, points, result
                work = Dispatch(kernel, arrays, POINTS, (COEFFICIENTS,), strides=True)
                best[index] = min(best[index], _seconds(cards, work))
        by_integers, by_doubles = (result.numpy() for result in results)
    return np.array_equal(by_integers, by_doubles) and best[1] < best[0]


def _seconds(cards: CardArrays, work: Dispatch) -> float:
    """From an idle device until it is idle again."""
    cards.chain.wait()
    begun = perf_counter()
    cards.submit([work])
    cards.chain.wait()
    return perf_counter() - begun
