// Entries of sums of table points, for accumulate.comp: scalar i is the sum over its windows w of point
// (w << window_bits) + d of a table, where d is digit w of the scalar. All entries of scalar i have the
// key i, so that the sum of "bucket" i is a multiple of the table's base.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; uint scalar_words; uint windows; uint window_bits; };
layout(set = 0, binding = 0, std430) readonly buffer Scalars { uint scalars[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Entries { uint entries[]; };

// `window_bits` divides 32, so that no digit is in two words.
ELEMENTWISE(t) {
    uint scalar = t / windows, window = t % windows, bit = window * window_bits;
    uint word = scalars[scalar * scalar_words + bit / 32];
    keys[t] = scalar;
    entries[t] = window << window_bits | (word >> bit % 32 & (1u << window_bits) - 1);
}
