// The halves of a scalar k (`primes/glv.py`): (k1, k2) = (k, 0) + c1 (f0, f2) + c2 (f1, f3). c1 and c2 are k
// times a constant fraction, rounded. The halves are in two's complement, so all products are modulo
// 2^(32 HALF). Include spec_ids.glsl first.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = ID_WORDS) const uint WORDS = 8;
const uint HALF = (WORDS + 1) / 2 + 1, FRACTION = HALF + 1;

layout(set = 0, binding = 0, std430) readonly buffer Scalars { uint scalars[]; };
layout(set = 0, binding = 1, std430) readonly buffer Constants { uint constants[]; };

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

// What both halves of scalar i have in common.
void scale_scalar(uint i, out uint k[WORDS], out uint c1[HALF], out uint c2[HALF]) {
    [[unroll]] for (uint w = 0; w < WORDS; ++w) k[w] = scalars[i * WORDS + w];
    scale(k, 0, c1);
    scale(k, FRACTION, c2);
}

// k1 (which = 0) or k2.
void make_half(uint which, uint k[WORDS], uint c1[HALF], uint c2[HALF], out uint z[HALF]) {
    uint factors = 2 * FRACTION + 2 * which * HALF;
    [[unroll]] for (uint i = 0; i < HALF; ++i) z[i] = which == 0 && i < WORDS ? k[i] : 0;
    add_product(c1, factors, z);
    add_product(c2, factors + HALF, z);
}
