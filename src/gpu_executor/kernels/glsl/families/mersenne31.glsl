// Elements modulo p = 2^31 - 1: one word in canonical form. Modulo p, 2^31 = 1.

layout(push_constant) uniform Push { uint count; KERNEL_PUSH };

const uint P = 0x7fffffffu;
#include "words31.glsl"

void f_one(out uint z) { z = 1; }

// x * y = high31 * 2^31 + low31 = high31 + low31 mod p, which is below 2p.
void f_mul(uint x, uint y, out uint z) {
    uint high, low;
    umulExtended(x, y, high, low);
    z = reduce_once((high << 1 | low >> 31) + (low & P));
}

void f_square(uint x, out uint z) { f_mul(x, x, z); }
