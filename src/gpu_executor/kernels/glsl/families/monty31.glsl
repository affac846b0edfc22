// Elements modulo a prime below 2^31: one word in Montgomery form with R = 2^32.
//
// No 64-bit integers are used, so devices without them have these fields too.

// `inverse` is 1/p mod R; `one` is R mod p and `r_squared` is R^2 mod p.
layout(push_constant) uniform Push {
    uint count; uint modulus; uint inverse; uint one; uint r_squared; KERNEL_PUSH
};

#define P modulus
#include "words31.glsl"

void f_one(out uint z) { z = one; }
void f_canonical_one(out ELEMENT z) { z = ELEMENT(1); }
void f_r_squared(out ELEMENT z) { z = ELEMENT(r_squared); }

// (x * y - m * p) / R with m = x * y / p mod R: the lower halves of both products are equal, and
// the difference of the upper halves is between -p and p. Three multiplications.
void f_mul(uint x, uint y, out uint z) {
    uint high, low, multiple, unused;
    umulExtended(x, y, high, low);
    umulExtended(low * inverse, modulus, multiple, unused);
    z = lift_negative(high - multiple);
}

void f_square(uint x, out uint z) { f_mul(x, x, z); }
