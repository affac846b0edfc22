"""The primes that come by name."""

from gpu_executor.primes.prime import Prime

# BLS curves of embedding degree 12 are one family: its parameter gives the order of the group, a
# value of the 12th cyclotomic polynomial, and the field that the curve is over.
_BLS12_381_X = -0xD201000000010000
_BLS12_381_R = _BLS12_381_X**4 - _BLS12_381_X**2 + 1
_BLS12_381_Q = (_BLS12_381_X - 1) ** 2 * _BLS12_381_R // 3 + _BLS12_381_X

BLS12_381_FQ = Prime("bls12_381_fq", _BLS12_381_Q)
BLS12_381_FR = Prime("bls12_381_fr", _BLS12_381_R)

NAMED: dict[str, Prime] = {prime.name: prime for prime in (BLS12_381_FQ, BLS12_381_FR)}
