"""Kernels that hash rows of field elements: a permutation inside a sponge (glsl/field_hashes/).

Only a `Dispatch` runs them (`ops/field_hashes.py`). Their inputs are the rows, the initial state
and the constants of the permutation; the output has the digests.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.families import (
    LIMB_FORM_BITS,
    family,
    family_constants,
    family_limbs,
    family_push,
    module_family,
    module_name,
)
from gpu_executor.kernels.modules import F64_LIMB_BITS, SpecId, load_interface, load_spirv
from gpu_executor.kernels.passes import make_pass_kernel, tune_per_invocation
from gpu_executor.primes import Prime, words
from gpu_executor.primes.prime import LimbLayout, choose_limb_layout

MIN_SLACK = 40
"""The least M / p: sums are below 34p (glsl/field_hashes/wide_mix.glsl), and factors of a product
below 3p."""
MIN_TOP_BITS = 16
"""The least bits of p in the topmost limb, of whose quotient Poseidon2 reduces sums."""
SEVENTH_ROOT_ITERATIONS = 3 + 6 + 12 + 6 + 31 + 5
"""Iterations of the loops of take_seventh_root (glsl/field_hashes/goldilocks/rescue.comp)."""
WIDE_FAMILIES = ("wide", "f64_limbs")
GROUPED_HASHES = ("poseidon", "poseidon2", "rescue")
"""The modules that also have a form in which a group of invocations computes a permutation, each
with one element of the state. MiMC raises one element at a time."""


@functools.cache
def hash_kernel(
    prime: Prime,
    module: str,
    width: int,
    parameters: tuple[tuple[int, int], ...],
    *,
    unrolled: bool,
    f64_limbs: bool,
    lanes: int = 1,
) -> Kernel:
    """Return the kernel `glsl/field_hashes/<module>.comp` for states of `width` elements.

    `lanes` invocations share a state, as many as `count_lanes` says, or one has all of it.
    `parameters` are the permutation's own specialization constants. Push words: the length of a
    row, the rate, the layout, the numbers of blocks and of outputs (glsl/field_hashes/sponge.glsl).
    """
    kind = hash_family(prime, module, width, f64_limbs=f64_limbs)
    code = module_name(kind, module, grouped=lanes > 1)
    interface = load_interface(code)
    limbs = hash_limbs(prime, width, kind)
    if module == "poseidon2":
        _check_top_limb(prime, limbs)
    present = {constant.spec_id for constant in interface.constants}
    known = {
        **family_constants(prime, kind, interface, limbs),
        SpecId.WIDTH: width,
        SpecId.UNROLLED: unrolled,
        SpecId.LANES: lanes,
        **dict(parameters),
    }
    number = np.uint32 if kind in WIDE_FAMILIES else prime.element_dtype
    return make_pass_kernel(
        load_spirv(code),
        f"{prime.name}_{module}_{width}" + f"_by_{lanes}" * (lanes > 1),
        3,
        [prime.element_dtype, number, number, prime.element_dtype],
        constants={spec_id: value for spec_id, value in known.items() if spec_id in present},
        push=family_push(prime, kind, interface, limbs),
        tuning=tune_per_invocation(present),
    )


def count_lanes(module: str, width: int) -> int:
    """Return the invocations of a group: a power of two, one for each element; 1 where the module
    has no groups."""
    return 1 << (width - 1).bit_length() if module in GROUPED_HASHES else 1


def hash_family(prime: Prime, module: str, width: int, *, f64_limbs: bool) -> str:
    """Return the family of the kernel of a permutation.

    That of f64 limbs only where numbers need as many limbs as elements do: with one more, products
    on integer limbs take less time, and an element would be more than a limb away from its number,
    which glsl/families/wide_limb_form.glsl does not convert. So elements of 255 and 256 bits have
    integer limbs, and those of 254 bits f64 limbs.
    """
    kind = module_family(prime, module, f64_limbs=f64_limbs)
    if kind == "f64_limbs":
        limbs = hash_limbs(prime, width, kind)
        if limbs is not None and limbs.count > family_limbs(prime, kind).count:
            return family(prime)
    return kind


def hash_limbs(prime: Prime, width: int, kind: str) -> LimbLayout | None:
    """Return the limbs of the numbers of a state; None in families whose elements are one integer.

    Their factor M is so large that a sum of `width` products of a number below 2p and a constant is
    below p M, and a product of factors too.
    """
    if kind not in WIDE_FAMILIES:
        return None
    slack = max(MIN_SLACK, 2 * width)
    spare = (slack * prime.modulus).bit_length() - 32 * prime.words
    spare = max(spare, LIMB_FORM_BITS)
    if kind == "f64_limbs":
        return LimbLayout.covering(prime.words, F64_LIMB_BITS, spare)
    return choose_limb_layout(prime.words, spare)


def _check_top_limb(prime: Prime, limbs: LimbLayout | None) -> None:
    """Refuse a prime whose topmost limb is too small for glsl/field_hashes/wide_mix.glsl."""
    if limbs is not None and prime.bits - limbs.bits * (limbs.count - 1) < MIN_TOP_BITS:
        raise KernelError(f"{prime.name}: the kernel of Poseidon2 has no limbs for this prime")


def encode_numbers(
    prime: Prime, width: int, values: Iterable[int], *, f64_limbs: bool, module: str
) -> npt.NDArray[np.unsignedinteger]:
    """Return elements as the kernel of a module reads its constants: elements in the prime's form,
    or limbs in Montgomery form with the factor M."""
    kind = hash_family(prime, module, width, f64_limbs=f64_limbs)
    limbs = hash_limbs(prime, width, kind)
    if limbs is None:
        return words.from_ints(prime, [prime.in_form(value) for value in values])
    factor = 1 << limbs.bits * limbs.count
    split = [limbs.split(value * factor % prime.modulus) for value in values]
    dtype = np.uint64 if kind == "f64_limbs" else np.uint32
    return np.array(split, dtype).reshape(-1).view(np.uint32)


def encode_initial(
    prime: Prime, width: int, state: Iterable[int], *, f64_limbs: bool, module: str
) -> npt.NDArray[np.unsignedinteger]:
    """Return an initial state as the kernel of a module reads it, with the factor that converts
    elements to numbers: the number of the element M / R has the limbs of M^2 / R."""
    values = list(state)
    limbs = hash_limbs(prime, width, hash_family(prime, module, width, f64_limbs=f64_limbs))
    if limbs is not None:
        factor = 1 << limbs.bits * limbs.count
        values.append(factor * prime.r_inverse % prime.modulus)
    return encode_numbers(prime, width, values, f64_limbs=f64_limbs, module=module)


def count_iterations(
    prime: Prime, module: str, width: int, parameters: tuple[tuple[int, int], ...]
) -> int:
    """Return how many iterations the loops of an invocation have for a permutation and the elements
    that it absorbs and yields, at most, where loops over the state are not unrolled (UNROLLED in
    glsl/field_hashes/state.glsl). The end of a loop counts too, and a function that returns early
    may be made a loop."""
    known = dict(parameters)
    lanes, returning_lanes = width + 1, 3 * width + 1
    exponent = known[SpecId.EXPONENT]
    power = exponent.bit_length() + exponent.bit_count() - 1
    rounds = known.get(SpecId.FULL_ROUNDS, 0), known.get(SpecId.PARTIAL_ROUNDS, 0)
    if module == "poseidon2" and not is_wide(prime):  # its lanes are always unrolled
        return sum(rounds) + 8
    mix = 2 * lanes + width * lanes
    match module:
        case "poseidon":
            full = returning_lanes + width * power + mix + 1
            partial = returning_lanes + power + 3 * lanes + 2 * width + 1
            iterations = rounds[0] * full + rounds[1] * partial
        case "poseidon2":
            full, partial = (returning_lanes + each * power + mix + 1 for each in (width, 1))
            iterations = (rounds[0] + 1) * full + rounds[1] * partial
        case "rescue":
            powers = lanes + width * power, lanes + width * SEVENTH_ROOT_ITERATIONS
            iterations = known[SpecId.ROUNDS] * sum(mix + each + 1 for each in powers)
        case _:
            iterations = known[SpecId.ROUNDS] * (power + 1)
    return iterations + 2 * returning_lanes + 4


def is_wide(prime: Prime) -> bool:
    """Return whether the elements of a prime are several words."""
    return family(prime) == "wide"


# --- diagonals of Poseidon2 (glsl/field_hashes/scalar_mix.glsl) ---

MAX_CODES = 24
MAX_MULTIPLE = 4
WEIGHT = 1024
_MULTIPLE, _QUOTIENT, _SHIFT_LEFT, _NEGATIVE = 1 << 8, 2 << 8, 3 << 8, 1 << 15


def diagonal_constants(prime: Prime, diagonal: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the specialization constants by which a kernel multiplies by a diagonal without
    products, where its numbers are small multiples, or divided or multiplied by powers of two."""
    kind, modulus = family(prime), prime.modulus
    if kind in WIDE_FAMILIES or len(diagonal) > MAX_CODES:
        return ()
    codes = [_encode_factor(kind, modulus, factor) for factor in diagonal]
    found: dict[int, int] = dict(enumerate(codes, SpecId.DIAGONAL_CODES))
    if kind == "monty31":
        found[SpecId.TWO_ADICITY] = prime.two_adicity
        found[SpecId.ODD_PART] = (modulus - 1) >> prime.two_adicity
        found[SpecId.SUM_LIMIT] = min(WEIGHT * prime.r // prime.r_mod_p, (1 << 32) - 1)
    return tuple(found.items())


def _encode_factor(kind: str, modulus: int, factor: int) -> int:
    """Return the code of a number of a diagonal; 0 for a product."""
    for sign, value in ((0, factor), (_NEGATIVE, -factor % modulus)):
        if 1 <= value <= MAX_MULTIPLE:
            return sign | _MULTIPLE | value
        if kind == "mersenne31":
            shift = value.bit_length() - 1
            if value == 1 << shift:
                return sign | _SHIFT_LEFT | shift
            continue
        two_adicity = ((modulus - 1) & (1 - modulus)).bit_length() - 1
        for shift in range(1, two_adicity + 1):
            if (value << shift) % modulus == 1:
                return sign | _QUOTIENT | shift
    return 0
