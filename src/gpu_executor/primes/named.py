"""The named primes: `NAMED["bls12_381_fr"]` and `BLS12_381_FR` are the same object.

FQ is the base field of a curve, the field of coordinates. FR is its scalar field, whose modulus is
the order of the group.

Roots of unity are powers of the smallest generator. For all of these primes, other libraries agree
on that generator. A prime's docstring says where some libraries use other roots.
"""

import sys
from typing import NoReturn

from gpu_executor.errors import RemovedNameError
from gpu_executor.primes import moduli
from gpu_executor.primes.prime import Prime

BLS12_381_FQ = Prime("bls12_381_fq", moduli.BLS12_381_Q)
BLS12_381_FR = Prime("bls12_381_fr", moduli.BLS12_381_R)
"""Its generator is 7, as in EIP-4844."""
BN254_FQ = Prime("bn254_fq", moduli.BN254_Q)
BN254_FR = Prime("bn254_fr", moduli.BN254_R)
"""Its generator is 5; halo2 takes powers of 7, which is a generator too."""
BLS12_377_FQ = Prime("bls12_377_fq", moduli.BLS12_377_Q)
BLS12_377_FR = Prime("bls12_377_fr", moduli.BLS12_377_R)
SECP256K1_FQ = Prime("secp256k1_fq", moduli.SECP256K1_Q)
SECP256K1_FR = Prime("secp256k1_fr", moduli.SECP256K1_R)
CURVE25519_FQ = Prime("curve25519_fq", moduli.CURVE25519_Q)
"""The base field of Curve25519 and Ed25519."""
PALLAS_FQ = Prime("pallas_fq", moduli.PALLAS_Q)
VESTA_FQ = Prime("vesta_fq", moduli.VESTA_Q)
PALLAS_FR, VESTA_FR = VESTA_FQ, PALLAS_FQ
"""The base field of each curve is the scalar field of the other."""
GOLDILOCKS = Prime("goldilocks", moduli.GOLDILOCKS_P, canonical=True)
"""Its generator is 7, and its root of order 2^32 is 1753635133440165772; Plonky2 and Winterfell
take 7277203076849721926 as that root."""
BABYBEAR = Prime("babybear", moduli.BABYBEAR_P)
"""Its generator is 31, and its root of order 2^27 is 31^15; RISC Zero takes 137 as that root."""
KOALABEAR = Prime("koalabear", moduli.KOALABEAR_P)
MERSENNE31 = Prime("mersenne31", moduli.MERSENNE31_P, canonical=True)

NAMED: dict[str, Prime] = {
    prime.name: prime
    for prime in (
        *(BLS12_381_FQ, BLS12_381_FR),
        *(BN254_FQ, BN254_FR),
        *(BLS12_377_FQ, BLS12_377_FR),
        *(SECP256K1_FQ, SECP256K1_FR),
        CURVE25519_FQ,
        *(PALLAS_FQ, VESTA_FQ),
        *(GOLDILOCKS, BABYBEAR, KOALABEAR, MERSENNE31),
    )
}

RENAMED = {
    "SECP256K1": "SECP256K1_FQ",
    "SECP256K1_FN": "SECP256K1_FR",
    "CURVE25519": "CURVE25519_FQ",
    "PALLAS": "PALLAS_FQ",
    "VESTA": "VESTA_FQ",
}
"""Names of fields in earlier versions, and the names that have taken their place."""


def refuse_name(module: str, name: str) -> NoReturn:
    """Raise for a name that `__getattr__` of a package of fields or primes does not find; for one
    of an earlier version the error says the new name."""
    if name in RENAMED:
        message = f"{module}.{name} is now {module}.{RENAMED[name]}"
        # `from package import name` first asks for the attribute in this function of importlib.
        # It would replace an AttributeError by an ImportError that does not say the new name.
        if sys._getframe(2).f_code.co_name == "_handle_fromlist":
            raise ImportError(message, name=module)
        raise RemovedNameError(message)
    raise AttributeError(f"module {module!r} has no attribute {name!r}")
