// Elements modulo p = 2^64 - 2^32 + 1: one 64-bit integer in canonical form. Modulo p,
// 2^64 = EPSILON = 2^32 - 1 and 2^96 = -1.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(push_constant) uniform Push { uint count; KERNEL_PUSH };

#define SCALAR uint64_t
#define VECTOR u64vec2
#include "scalar.glsl"

const uint64_t P = 0xffffffff00000001ul;
const uint64_t EPSILON = 0xfffffffful;

void f_one(out uint64_t z) { z = 1; }

// x + y may overflow 64 bits. If x >= p - y, the result x - (p - y) does not; else x + y is below
// p.
void f_add(uint64_t x, uint64_t y, out uint64_t z) {
    uint64_t gap = P - y;
    z = x < gap ? x + y : x - gap;
}

void f_sub(uint64_t x, uint64_t y, out uint64_t z) {
    z = x < y ? x - y + P : x - y;
}

void f_neg(uint64_t x, out uint64_t z) {
    z = x == 0 ? x : P - x;
}

// high * 2^64 + low mod p.
uint64_t reduce(uint64_t high, uint64_t low) {
    // high = top * 2^32 + middle. top * 2^96 = -top, and middle * 2^64 = middle * EPSILON.
    uint64_t top = high >> 32, middle = high & EPSILON;
    // A wrap-around changes the value by 2^64 = EPSILON, which is corrected. The corrections do not
    // wrap: low - top, wrapped, is at least 2^64 - 2^32; the wrapped sum is at most 2^64 - 2^33.
    uint64_t x = low - top;
    if (low < top) x -= EPSILON;
    uint64_t y = (middle << 32) - middle;
    uint64_t sum = x + y;
    if (sum < y) sum += EPSILON;
    return sum < P ? sum : sum - P;
}

// Four 32 x 32 -> 64-bit products. 292 G squares/s in chains on an NVIDIA H200; on arrays in
// memory, the bandwidth is the limit.
void f_mul(uint64_t x, uint64_t y, out uint64_t z) {
    uint64_t x0 = x & EPSILON, x1 = x >> 32, y0 = y & EPSILON, y1 = y >> 32;
    uint64_t low = x0 * y0;
    // A 32 x 32-bit product is at most (2^32 - 1)^2, so two integers below 2^32 can be added to it.
    uint64_t middle = x1 * y0 + (low >> 32);
    uint64_t other = x0 * y1 + (middle & EPSILON);
    uint64_t high = x1 * y1 + (middle >> 32) + (other >> 32);
    z = reduce(high, (other << 32) | (low & EPSILON));
}

// The two mixed products are equal, and compilers see that: three products are left.
void f_square(uint64_t x, out uint64_t z) { f_mul(x, x, z); }
