// Elements of a prime below 2^31: one word in Montgomery form with R = 2^32.
//
// No 64-bit numbers: devices without them have these fields too.

// `inverse` is 1/p modulo R; `one` and `r_squared` are R and R^2 modulo p.
layout(push_constant) uniform Push {
    uint count; uint modulus; uint inverse; uint one; uint r_squared; KERNEL_PUSH
};

#define P modulus
#include "words31.glsl"

void f_one(out uint z) { z = one; }
void f_plain_one(out ELEMENT z) { z = ELEMENT(1); }
void f_r_squared(out ELEMENT z) { z = ELEMENT(r_squared); }

// x * y - m * p is a multiple of R for m = x * y / p mod R: the lower halves are equal, and what is
// left of the upper ones is between -p and p.
void f_mul(uint x, uint y, out uint z) {
    uint high, low, multiple, unused;
    umulExtended(x, y, high, low);
    umulExtended(low * inverse, modulus, multiple, unused);
    z = raise_once(high - multiple);
}

void f_square(uint x, out uint z) { f_mul(x, x, z); }
