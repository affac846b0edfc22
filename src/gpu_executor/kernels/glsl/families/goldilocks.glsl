// Elements of p = 2^64 - 2^32 + 1: one 64-bit number, as it is. Modulo p, 2^64 is EPSILON = 2^32 -
// 1 and 2^96 is -1.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(push_constant) uniform Push { uint count; KERNEL_PUSH };

#define NUMBER uint64_t
#define NUMBERS u64vec2
#include "numbers.glsl"

const uint64_t P = 0xffffffff00000001ul;
const uint64_t EPSILON = 0xfffffffful;

void f_one(out uint64_t z) { z = 1; }

// x + y would overflow; x - (p - y) does not where it is not negative, and else x + y is below p.
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
    // high is top * 2^32 + middle: top * 2^96 is -top, and middle * 2^64 is middle * EPSILON.
    uint64_t top = high >> 32, middle = high & EPSILON;
    // What wraps around is 2^64 too much or too little, which is EPSILON. It does so once: where
    // low - top wraps, it is near 2^64; where the sum does, it is at most 2^64 - 2^33.
    uint64_t x = low - top;
    if (low < top) x -= EPSILON;
    uint64_t y = (middle << 32) - middle;
    uint64_t sum = x + y;
    if (sum < y) sum += EPSILON;
    return sum < P ? sum : sum - P;
}

// 292 G squares/s in chains on an NVIDIA H200; streamed, products wait for memory.
void f_mul(uint64_t x, uint64_t y, out uint64_t z) {
    uint64_t x0 = x & EPSILON, x1 = x >> 32, y0 = y & EPSILON, y1 = y >> 32;
    uint64_t low = x0 * y0;
    // A product of halves is at most (2^32 - 1)^2, which leaves room for two numbers below 2^32.
    uint64_t middle = x1 * y0 + (low >> 32);
    uint64_t other = x0 * y1 + (middle & EPSILON);
    uint64_t high = x1 * y1 + (middle >> 32) + (other >> 32);
    z = reduce(high, (other << 32) | (low & EPSILON));
}

// Its two mixed products are equal; compilers see that where the factors are.
void f_square(uint64_t x, out uint64_t z) { f_mul(x, x, z); }
