"""The named primes: `NAMED["bls12_381_fr"]` and `BLS12_381_FR` are the same object.

Roots of unity are powers of the smallest generator. For all of these primes, other libraries agree
on that generator. A prime's docstring says where some libraries use other roots.
"""

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
SECP256K1 = Prime("secp256k1", moduli.SECP256K1_Q)
"""The base field: coordinates of points."""
SECP256K1_FN = Prime("secp256k1_fn", moduli.SECP256K1_R)
"""The scalar field: its modulus is the order n of the group."""
CURVE25519 = Prime("curve25519", moduli.CURVE25519_Q)
"""The base field of Curve25519 and Ed25519."""
PALLAS = Prime("pallas", moduli.PALLAS_Q)
"""The base field of Pallas and scalar field of Vesta."""
VESTA = Prime("vesta", moduli.VESTA_Q)
"""The base field of Vesta and scalar field of Pallas."""
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
        *(SECP256K1, SECP256K1_FN),
        CURVE25519,
        *(PALLAS, VESTA),
        *(GOLDILOCKS, BABYBEAR, KOALABEAR, MERSENNE31),
    )
}
