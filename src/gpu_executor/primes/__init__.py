"""Primes, every constant that field kernels derive from one, and exact arithmetic on the CPU."""

from typing import TYPE_CHECKING, NoReturn

from gpu_executor.primes.extension import ElementLayout, Extension, PrimeOrExtension
from gpu_executor.primes.named import (
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
    NAMED,
    PALLAS_FQ,
    PALLAS_FR,
    SECP256K1_FQ,
    SECP256K1_FR,
    VESTA_FQ,
    VESTA_FR,
    refuse_name,
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
    "CURVE25519_FQ",
    "GOLDILOCKS",
    "KOALABEAR",
    "MERSENNE31",
    "NAMED",
    "PALLAS_FQ",
    "PALLAS_FR",
    "SECP256K1_FQ",
    "SECP256K1_FR",
    "VESTA_FQ",
    "VESTA_FR",
    "ElementLayout",
    "Extension",
    "Form",
    "LimbLayout",
    "Prime",
    "PrimeOrExtension",
    "choose_limb_layout",
]


if not TYPE_CHECKING:  # a type checker knows the names without it

    def __getattr__(name: str) -> NoReturn:
        """Refuse names that the module does not have."""
        refuse_name(__name__, name)
