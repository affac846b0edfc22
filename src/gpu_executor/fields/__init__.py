"""Finite fields: arithmetic on arrays of elements, on the host or on a device."""

from typing import TYPE_CHECKING, NoReturn

from gpu_executor.fields import eip4844
from gpu_executor.fields.extension import (
    BLS12_377_FQ2,
    BLS12_381_FQ2,
    BN254_FQ2,
    GOLDILOCKS2,
    GOLDILOCKS3,
    ExtensionArray,
    ExtensionField,
)
from gpu_executor.fields.field import (
    BABYBEAR,
    BLS12_377_FQ,
    BLS12_377_FR,
    BLS12_381_FQ,
    BLS12_381_FR,
    BN254_FQ,
    BN254_FR,
    CURVE25519_FQ,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    PALLAS_FQ,
    PALLAS_FR,
    SECP256K1_FQ,
    SECP256K1_FR,
    VESTA_FQ,
    VESTA_FR,
    Field,
    FieldArray,
)
from gpu_executor.primes.named import refuse_name

__all__ = [
    "BABYBEAR",
    "BLS12_377_FQ",
    "BLS12_377_FQ2",
    "BLS12_377_FR",
    "BLS12_381_FQ",
    "BLS12_381_FQ2",
    "BLS12_381_FR",
    "BN254_FQ",
    "BN254_FQ2",
    "BN254_FR",
    "CURVE25519_FQ",
    "GOLDILOCKS",
    "GOLDILOCKS2",
    "GOLDILOCKS3",
    "KOALABEAR",
    "MERSENNE31",
    "PALLAS_FQ",
    "PALLAS_FR",
    "SECP256K1_FQ",
    "SECP256K1_FR",
    "VESTA_FQ",
    "VESTA_FR",
    "ExtensionArray",
    "ExtensionField",
    "Field",
    "FieldArray",
    "eip4844",
]


if not TYPE_CHECKING:  # a type checker knows the names without it

    def __getattr__(name: str) -> NoReturn:
        """Refuse names that the module does not have."""
        refuse_name(__name__, name)
