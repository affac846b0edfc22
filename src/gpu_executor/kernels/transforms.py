"""The kernels of number-theoretic transforms, and the form of the factors in their tables."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from gpu_executor.kernel import Constant, Kernel
from gpu_executor.kernels.constants import LIMB_BITS, LIMBS, NEGATIVE_INVERSE, packed_modulus
from gpu_executor.kernels.dispatched import dispatched_kernel
from gpu_executor.kernels.families import family
from gpu_executor.primes import Prime, words
from gpu_executor.primes.prime import LIMB_BITS as LIMB_WIDTHS
from gpu_executor.primes.prime import LimbLayout

# Specialization constants, as glsl/transform.glsl numbers them.
LEVELS, COLUMNS, TWISTS, DIRECT, REVERSES = range(60, 65)
SPARE_BITS = 2
"""Numbers in work are below 4p (glsl/families/wide_work.glsl)."""


@functools.cache
def pass_kernel(
    prime: Prime,
    *,
    gathers: bool,
    levels: int,
    columns: int,
    twists: bool,
    direct: bool,
    reverses: bool = False,
) -> Kernel:
    """One pass; inputs x, roots, low and high factors. It is told log_m, low_bits and log_n."""
    name = "gather" if gathers else "scatter"
    tuning = {
        LEVELS: levels,
        COLUMNS: columns,
        TWISTS: twists,
        DIRECT: direct,
        REVERSES: reverses,
    }
    return _kernel(prime, name, inputs=4, tuning=tuning)


@functools.cache
def powers_kernel(prime: Prime) -> Kernel:
    """Times powers; inputs x, low and high factors. It is told log_n, low_bits and whether x is in
    bit-reversed order."""
    return _kernel(prime, "powers", inputs=3)


def work_bytes(prime: Prime) -> int:
    """What a number in work takes of shared memory."""
    return 4 * work_limbs(prime).count if family(prime) == "wide" else prime.element_bytes


@functools.cache
def work_limbs(prime: Prime) -> LimbLayout:
    """The fewest limbs that leave the room that numbers in work need."""
    layouts = [
        LimbLayout(bits, count, 0)
        for bits in LIMB_WIDTHS
        for count in [-(-(prime.bits + SPARE_BITS) // bits)]
    ]
    return min(layouts, key=lambda layout: (layout.count, layout.bits))


def factors(prime: Prime, values: Iterable[int]) -> words.Elements:
    """Numbers as kernels want to multiply by them: in work form, see glsl/work.glsl."""
    kind, modulus = family(prime), prime.modulus
    if kind == "wide":
        limbs = work_limbs(prime)
        values = (value << limbs.bits * limbs.count for value in values)
    elif kind == "monty31":
        values = (value * prime.r for value in values)
    return words.from_ints(prime, [value % modulus for value in values])


def _kernel(
    prime: Prime, module: str, *, inputs: int, tuning: Mapping[int, Constant] | None = None
) -> Kernel:
    constants, push, kind = dict(tuning or {}), None, family(prime)
    if kind == "wide":
        limbs = work_limbs(prime)
        constants |= {
            LIMBS: limbs.count,
            LIMB_BITS: limbs.bits,
            NEGATIVE_INVERSE: limbs.negative_inverse(prime.modulus),
        }
        push = packed_modulus(limbs.split(prime.modulus))
    return dispatched_kernel(prime, kind, module, inputs=inputs, constants=constants, push=push)
