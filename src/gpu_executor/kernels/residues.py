"""Residues of numbers modulo the prime of a curve: the moduli, and the constants of each lane.

`glsl/curves/residues.glsl` describes the arithmetic, `glsl/curves/residue_points.glsl` the formulas
of points and their bounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpu_executor.kernel import Constant, Kernel
from gpu_executor.kernels.curves import RESIDUE_ARRAYS, curve_limbs, curve_module_name
from gpu_executor.kernels.modules import SpecId, load_interface, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel
from gpu_executor.primes.curve_key import CurveKey
from gpu_executor.primes.glv import find_cube_root_of_unity

ROW, ROWS = 16, 6
"""Lanes that compute one product, each with a modulus of both bases, and products at the same
time."""
WORK_GROUP = ROW * ROWS
POINT_WORDS = 3 * ROW * 2
"""32-bit words of a projective point in residues."""
RESIDUE_BITS = 30
MAX_RESIDUES = 14
"""Moduli of a base at most: sums of so many products of residues, and one more, fit 64 bits."""
MAX_OFFSET = 1 << 10
"""Moduli are 2^30 minus less than this."""
PRODUCT_BOUND = 16
"""Products are below so many p."""
MAX_THREE_B = 1 << 10


@dataclass(frozen=True, slots=True)
class ResidueBases:
    """The moduli of two bases."""

    a: tuple[int, ...]
    b: tuple[int, ...]


@functools.cache
def list_moduli() -> tuple[int, ...]:
    """Return the largest numbers below 2^30 of which no two have a common factor."""
    found: list[int] = []
    for offset in range(1, MAX_OFFSET, 2):
        modulus = (1 << RESIDUE_BITS) - offset
        if all(math.gcd(modulus, other) == 1 for other in found):
            found.append(modulus)
    return tuple(found)


def get_three_b(curve: CurveKey) -> int:
    """Return 3 b modulo p."""
    return 3 * curve.b[0] % curve.prime.modulus


@functools.cache
def choose_bases(curve: CurveKey) -> ResidueBases | None:
    """Return the bases for a curve, or None where its points have no residues: its field is an
    extension, a is not 0, b is not small, or p is too long or too short."""
    p, three_b = curve.prime.modulus, get_three_b(curve)
    if curve.degree > 1 or any(curve.a) or three_b > MAX_THREE_B or p.bit_length() < 64:
        return None
    # The largest sum of two products, in units of p^2: Y of a sum or of a doubling.
    multiple = 3 * PRODUCT_BOUND * three_b
    larger, smaller = PRODUCT_BOUND + multiple, PRODUCT_BOUND * (1 + three_b)
    others = 8 * PRODUCT_BOUND * PRODUCT_BOUND * three_b + 4 * PRODUCT_BOUND * PRODUCT_BOUND
    least = (larger * smaller + others) * p
    moduli, count = list_moduli(), 1
    while math.prod(moduli[count : 2 * count]) < least:
        count += 1
    if count > MAX_RESIDUES or count * RESIDUE_BITS > ROW * curve_limbs(curve).bits:
        return None
    return ResidueBases(moduli[count : 2 * count], moduli[:count])


@functools.cache
def _encode(curve: CurveKey) -> npt.NDArray[np.uint32]:
    bases = choose_bases(curve)
    assert bases is not None
    p, limbs, three_b = curve.prime.modulus, curve_limbs(curve), get_three_b(curve)
    whole_a, whole_b = math.prod(bases.a), math.prod(bases.b)
    parts_a = [whole_a // each for each in bases.a]
    parts_b = [whole_b // each for each in bases.b]
    pairs = list(zip(bases.a, parts_a, strict=True)), list(zip(bases.b, parts_b, strict=True))
    multiple = 3 * PRODUCT_BOUND * three_b * p
    image = (find_cube_root_of_unity(p) or 1) * whole_a % p
    factors = curve.prime.one, 1 << limbs.bits * limbs.count

    def lift(moduli: Sequence[int]) -> list[int]:
        """The residues of the multiple of p, not less than any product's."""
        least = (1 << RESIDUE_BITS) + (1 << 21)
        return [multiple % each + each * -(-(least - multiple % each) // each) for each in moduli]

    def residues(number: int, moduli: Sequence[int]) -> list[int]:
        return [number % each for each in moduli]

    def split(number: int) -> list[int]:
        mask = (1 << limbs.bits) - 1
        found = [number >> limbs.bits * at & mask for at in range(ROW)]
        assert number >> limbs.bits * ROW == 0
        return found

    rows = [
        [(1 << RESIDUE_BITS) - each for each in bases.a],
        [(1 << RESIDUE_BITS) - each for each in bases.b],
        [-pow(p * part, -1, each) % each for each, part in pairs[0]],
        [pow(whole_a * part, -1, each) for each, part in pairs[1]],
        [-whole_b % each for each in bases.a],
        [part % each for each, part in pairs[1]],
        lift(bases.a),
        lift(bases.b),
        *(residues(factor % p, moduli) for factor in factors for moduli in (bases.a, bases.b)),
        [three_b] * ROW,
        *(residues(image, moduli) for moduli in (bases.a, bases.b)),
        split(whole_b),
        *([p * pow(own * part, -1, each) % each for each, part in pairs[1]] for own in bases.a),
        *(residues(part, bases.a) for part in parts_b),
        *(split(part) for part in parts_b),
        *(residues(1 << limbs.bits * at, bases.a) for at in range(limbs.count)),
        *(residues(1 << limbs.bits * at, bases.b) for at in range(limbs.count)),
    ]
    padded = [row + [0] * (ROW - len(row)) for row in rows]
    return np.array(padded, np.uint32)


def encode_residue_constants(curve: CurveKey) -> npt.NDArray[np.uint32]:
    """Return the constants of all lanes, in the order of glsl/curves/residues.glsl."""
    return _encode(curve)


@functools.cache
def residue_kernel(curve: CurveKey, operation: str) -> Kernel:
    """Return the kernel `glsl/curves/<operation>.comp`, for a curve with `choose_bases`."""
    bases, (inputs, outputs) = choose_bases(curve), RESIDUE_ARRAYS[operation]
    assert bases is not None
    module, prime, limbs = curve_module_name(operation, 1, ""), curve.prime, curve_limbs(curve)
    constants: dict[int, Constant] = {
        SpecId.WORDS: prime.words,
        SpecId.LIMBS: limbs.count,
        SpecId.LIMB_BITS: limbs.bits,
        SpecId.RESIDUES: len(bases.a),
        **dict(enumerate(limbs.split(prime.modulus), SpecId.MODULUS)),
    }
    present = {constant.spec_id for constant in load_interface(module).constants}
    return make_pass_kernel(
        load_spirv(module),
        f"curve_{operation}_{prime.name}",
        inputs,
        [np.uint32] * (inputs + outputs),
        constants={spec_id: value for spec_id, value in constants.items() if spec_id in present},
    )
