// Splits each scalar k into halves k1 and k2 of half its length (`primes/glv.py`): (k1, k2) =
// (k, 0) + c1 (f0, f2) + c2 (f1, f3). c1 and c2 are k times a constant fraction, rounded. The halves
// are in two's complement, so all products are modulo 2^(32 HALF).
//
// The scalars of a batch of `points` scalars become its first halves, then its second halves.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "grid.glsl"

layout(constant_id = ID_WORDS) const uint WORDS = 8;
const uint HALF = (WORDS + 1) / 2 + 1, FRACTION = HALF + 1;

layout(push_constant) uniform Push { uint count; uint points; };
layout(set = 0, binding = 0, std430) readonly buffer Scalars { uint scalars[]; };
layout(set = 0, binding = 1, std430) readonly buffer Constants { uint constants[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Halves { uint halves[]; };

// c = k times the fraction whose words begin at `first`, rounded: the words of the product above
// WORDS + 1.
void scale(uint k[WORDS], uint first, out uint c[HALF]) {
    uint product[WORDS + FRACTION];
    [[unroll]] for (uint i = 0; i < FRACTION; ++i) product[i] = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint64_t carry = 0;
        [[unroll]] for (uint j = 0; j < FRACTION; ++j) {
            carry += uint64_t(k[i]) * constants[first + j] + product[i + j];
            product[i + j] = uint(carry);
            carry >>= 32;
        }
        product[i + FRACTION] = uint(carry);
    }
    uint64_t carry = product[WORDS] >> 31;
    [[unroll]] for (uint i = 0; i < HALF; ++i) {
        carry += product[WORDS + 1 + i];
        c[i] = uint(carry);
        carry >>= 32;
    }
}

// z += c times the factor whose words begin at `first`.
void add_product(uint c[HALF], uint first, inout uint z[HALF]) {
    [[unroll]] for (uint i = 0; i < HALF; ++i) {
        uint64_t carry = 0;
        [[unroll]] for (uint j = 0; j < HALF - i; ++j) {
            carry += uint64_t(c[i]) * constants[first + j] + z[i + j];
            z[i + j] = uint(carry);
            carry >>= 32;
        }
    }
}

ELEMENTWISE(e) {
    uint k[WORDS], c1[HALF], c2[HALF];
    [[unroll]] for (uint i = 0; i < WORDS; ++i) k[i] = scalars[e * WORDS + i];
    scale(k, 0, c1);
    scale(k, FRACTION, c2);
    for (uint half_ = 0; half_ < 2; ++half_) {
        uint z[HALF], factors = 2 * FRACTION + 2 * half_ * HALF;
        [[unroll]] for (uint i = 0; i < HALF; ++i) z[i] = half_ == 0 && i < WORDS ? k[i] : 0;
        add_product(c1, factors, z);
        add_product(c2, factors + HALF, z);
        uint at = (e / points * 2 + half_) * points + e % points;
        [[unroll]] for (uint i = 0; i < HALF; ++i) halves[at * HALF + i] = z[i];
    }
}
