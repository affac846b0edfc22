"""Finite fields: arrays of elements, on the host or on a card, and what can be done with them."""

from gpu_executor.fields import eip4844
from gpu_executor.fields.array import FieldArray
from gpu_executor.fields.field import Field
from gpu_executor.fields.named import (
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
