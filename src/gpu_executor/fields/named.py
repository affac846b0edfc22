"""The fields that come by name."""

from gpu_executor.fields.field import Field
from gpu_executor.primes import named

BLS12_381_FQ = Field(named.BLS12_381_FQ.modulus)
BLS12_381_FR = Field(named.BLS12_381_FR.modulus)
BN254_FQ = Field(named.BN254_FQ.modulus)
BN254_FR = Field(named.BN254_FR.modulus)
BLS12_377_FQ = Field(named.BLS12_377_FQ.modulus)
BLS12_377_FR = Field(named.BLS12_377_FR.modulus)
SECP256K1 = Field(named.SECP256K1.modulus)
SECP256K1_FN = Field(named.SECP256K1_FN.modulus)
CURVE25519 = Field(named.CURVE25519.modulus)
PALLAS = Field(named.PALLAS.modulus)
VESTA = Field(named.VESTA.modulus)
GOLDILOCKS = Field(named.GOLDILOCKS.modulus)
BABYBEAR = Field(named.BABYBEAR.modulus)
KOALABEAR = Field(named.KOALABEAR.modulus)
MERSENNE31 = Field(named.MERSENNE31.modulus)
