"""Finite fields: arithmetic on arrays of elements, on the host or on a device."""

from gpu_executor.fields import eip4844
from gpu_executor.fields.field import (
    BABYBEAR,
    BLS12_377_FQ,
    BLS12_377_FR,
    BLS12_381_FQ,
    BLS12_381_FR,
    BN254_FQ,
    BN254_FR,
    CURVE25519,
    GOLDILOCKS,
    KOALABEAR,
    MERSENNE31,
    PALLAS,
    SECP256K1,
    SECP256K1_FN,
    VESTA,
    Field,
    FieldArray,
)

__all__ = [
    "BABYBEAR",
    "BLS12_377_FQ",
    "BLS12_377_FR",
    "BLS12_381_FQ",
    "BLS12_381_FR",
    "BN254_FQ",
    "BN254_FR",
    "CURVE25519",
    "GOLDILOCKS",
    "KOALABEAR",
    "MERSENNE31",
    "PALLAS",
    "SECP256K1",
    "SECP256K1_FN",
    "VESTA",
    "Field",
    "FieldArray",
    "eip4844",
]
