"""Families of primes: which SPIR-V modules serve a prime, and the constants that specialize them.

Each kernel in a folder of `glsl/` is compiled once for each family that uses it (`build`);
`glsl/element.glsl` describes the families. `family_constants` and `family_push` serve every kernel
that includes `element.glsl`: these functions read from a module's interface which constants the
module has.
"""

from __future__ import annotations

from gpu_executor.kernels.modules import (
    F64_LIMB_BITS,
    MAX_F64_LIMBS,
    SpecId,
    encode_f64_modulus,
    encode_modulus,
    encode_words,
    f64_limb_constants,
    has_module,
    limb_constants,
)
from gpu_executor.primes.prime import WORD_BITS, LimbLayout, Prime, choose_limb_layout
from gpu_executor.spirv import ShaderInterface

SCALAR_FAMILIES = ("monty31", "mersenne31", "goldilocks")
"""The families whose elements are one integer of the device."""
FAMILIES = ("wide", "f64_limbs", *SCALAR_FAMILIES)
"""The family `f64_limbs` serves the same primes as `wide`, on devices with fast float64, in kernels
that multiply."""
MONTGOMERY_FAMILIES = ("wide", "f64_limbs", "monty31")
"""The families whose elements are in Montgomery form; in the others they are in canonical form."""

PACK_BYTES = 16
"""Bytes that one invocation of a packed kernel loads at once, and the alignment that needs."""
PACKED_ELEMENTS = {"monty31": 4, "mersenne31": 4, "goldilocks": 2}
"""Elements per `PACK_BYTES`, the largest size that one instruction can load, for families of
smaller elements."""

MERSENNE31_MODULUS = 2**31 - 1
LIMB_FORM_BITS = 2
"""Bits that numbers in limb form need in addition to those of an element's words
(glsl/families/wide_limb_form.glsl)."""
GOLDILOCKS_MODULUS = 2**64 - 2**32 + 1
MONTY31_BITS = 31


def family(prime: Prime) -> str:
    """Return the family that a prime belongs to; it depends on the modulus alone."""
    if prime.modulus == GOLDILOCKS_MODULUS:
        return "goldilocks"
    if prime.modulus == MERSENNE31_MODULUS:
        return "mersenne31"
    return "monty31" if prime.bits <= MONTY31_BITS else "wide"


def module_family(prime: Prime, module: str, *, f64_limbs: bool) -> str:
    """Return the family whose module serves a prime: `f64_limbs` if requested and possible, else
    the prime's own.

    Only modules that multiply have f64 limbs, and only moduli of at most `MAX_F64_LIMBS` limbs fit.
    """
    own = family(prime)
    fits = prime.words * WORD_BITS <= MAX_F64_LIMBS * F64_LIMB_BITS
    if own == "wide" and f64_limbs and fits and has_module(f"f64_limbs_{module}"):
        return "f64_limbs"
    return own


def module_name(
    kind: str, module: str, *, packed: bool = False, checked: bool = False, grouped: bool = False
) -> str:
    """Return the name of a family's module, or of its packed, checked or grouped variant."""
    return f"{kind}{'_packed' * packed}{'_checked' * checked}{'_grouped' * grouped}_{module}"


def in_montgomery_form(prime: Prime) -> bool:
    """Return whether device-resident elements of the prime are in Montgomery form."""
    return family(prime) in MONTGOMERY_FAMILIES


def family_limbs(prime: Prime, kind: str) -> LimbLayout:
    """Return the limb layout to which a family's modules convert elements from memory."""
    return LimbLayout.covering(prime.words, F64_LIMB_BITS) if kind == "f64_limbs" else prime.limbs


def limb_form_limbs(prime: Prime, kind: str) -> LimbLayout:
    """Return the limb layout of a family's modules that compute in limb form
    (glsl/limb_form.glsl).
    """
    if kind == "f64_limbs":
        return LimbLayout.covering(prime.words, F64_LIMB_BITS, LIMB_FORM_BITS)
    return choose_limb_layout(prime.words, LIMB_FORM_BITS)


def family_constants(
    prime: Prime, kind: str, interface: ShaderInterface, limbs: LimbLayout | None = None
) -> dict[int, int]:
    """Return the specialization constants of the module that depend on the prime; `limbs` replace
    those of the family.
    """
    if kind not in ("wide", "f64_limbs"):
        return {}
    limbs = limbs or family_limbs(prime, kind)
    encode = f64_limb_constants if kind == "f64_limbs" else limb_constants
    known = encode(prime, limbs)
    known |= _make_word_constants(SpecId.ONE, prime, prime.r_mod_p)
    known |= _make_word_constants(SpecId.R_SQUARED, prime, prime.r2_mod_p)
    present = {constant.spec_id for constant in interface.constants}
    return {spec_id: value for spec_id, value in known.items() if spec_id in present}


def family_push(
    prime: Prime, kind: str, interface: ShaderInterface, limbs: LimbLayout | None = None
) -> bytes:
    """Return the push constants that follow the element count; the kernel's own come after them.
    `limbs` replace those of the family.
    """
    limbs = limbs or family_limbs(prime, kind)
    if kind == "f64_limbs":
        return encode_f64_modulus(limbs.split(prime.modulus))
    if kind == "wide":
        # A kernel that multiplies has the constant LIMBS, and takes the modulus as limbs.
        multiplies = interface.constant(SpecId.LIMBS) is not None
        modulus = limbs.split(prime.modulus) if multiplies else prime.modulus_words
        return encode_modulus(modulus)
    if kind == "monty31":
        inverse = pow(prime.modulus, -1, prime.r)
        return encode_words([prime.modulus, inverse, prime.r_mod_p, prime.r2_mod_p])
    return b""


def _make_word_constants(first: int, prime: Prime, value: int) -> dict[int, int]:
    """Return the words of a value as specialization constants with consecutive ids."""
    words = LimbLayout(WORD_BITS, prime.words, 0).split(value)
    return dict(enumerate(words, first))
