"""Primes, and every constant the field kernels need from one. There is no GPU in here."""

from gpu_executor.primes.named import BLS12_381_FQ, BLS12_381_FR, NAMED
from gpu_executor.primes.prime import LimbLayout, Prime, limb_layout

__all__ = ["BLS12_381_FQ", "BLS12_381_FR", "NAMED", "LimbLayout", "Prime", "limb_layout"]
