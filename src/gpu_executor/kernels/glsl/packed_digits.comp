// Splits each scalar of WORDS words into signed digits (window_digits.glsl), for a sort of packed entries. A
// batch has `points` scalars: digit w of scalar i is at w * points + i.
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "bucket_keys.glsl"

layout(constant_id = ID_WORDS) const uint WORDS = 8;
layout(push_constant) uniform Push { uint count; uint points; uint windows; uint window_bits; };
layout(set = 0, binding = 0, std430) readonly buffer Scalars { uint scalars[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Digits { uint digits[]; };

const uint DIGIT_WORDS = WORDS;
#include "window_digits.glsl"

ELEMENTWISE(e) {
    uint z[WORDS];
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = scalars[e * WORDS + i];
    store_digits(z, e / points * windows * points + e % points, points);
}
