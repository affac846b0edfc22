// The digits of keys, and the tiles that the keys are divided into: what the kernels of the radix
// sort share.
//
// A pass sorts by DIGIT_BITS bits from bit `shift` on. Keys are words as they are in memory;
// their order as unsigned integers, signed integers or floats is applied when a digit is computed.

#include "spec_ids.glsl"

layout(constant_id = ID_KEYS) const uint KEYS = 16;  // per invocation
layout(constant_id = ID_DIGIT_BITS) const uint DIGIT_BITS = 8;
layout(constant_id = ID_ORDER) const uint ORDER = 0;

const uint UNSIGNED = 0, SIGNED = 1, FLOAT = 2;  // values of ORDER; Order in kernels/sorting.py
const uint RADIX = 1u << DIGIT_BITS;
const uint TILE = gl_WorkGroupSize.x * KEYS;

// NaN is behind every other float. Negative zero is equal to zero.
#define NOT_A_NUMBER 0xffffffffu
#include "ordered_floats.glsl"

uint compute_digit(uint key, uint shift) {
    if (ORDER == SIGNED) key ^= 0x80000000u;
    if (ORDER == FLOAT) key = from_memory(key == 0x80000000u ? 0 : key);
    return key >> shift & (RADIX - 1);
}

// A key that no other key is behind.
uint last_key() {
    return ORDER == UNSIGNED ? 0xffffffffu : ORDER == SIGNED ? 0x7fffffffu : 0x7fc00000u;
}
