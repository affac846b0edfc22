"""Primes, and every constant the field kernels need from one. There is no GPU in here."""

from gpu_executor.primes.named import (
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
    NAMED,
    PALLAS,
    SECP256K1,
    SECP256K1_FN,
    VESTA,
)
from gpu_executor.primes.prime import Form, LimbLayout, Prime, limb_layout

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
    "NAMED",
    "PALLAS",
    "SECP256K1",
    "SECP256K1_FN",
    "VESTA",
    "Form",
    "LimbLayout",
    "Prime",
    "limb_layout",
]
