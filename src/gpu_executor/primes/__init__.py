"""Primes, every constant that field kernels derive from one, and exact arithmetic on the CPU."""

from gpu_executor.primes.extension import ElementLayout, Extension, PrimeOrExtension
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
from gpu_executor.primes.prime import Form, LimbLayout, Prime, choose_limb_layout

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
    "ElementLayout",
    "Extension",
    "Form",
    "LimbLayout",
    "Prime",
    "PrimeOrExtension",
    "choose_limb_layout",
]
