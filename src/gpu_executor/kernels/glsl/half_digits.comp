// Splits each scalar into halves (halves.glsl) and these into signed digits (window_digits.glsl), for a sort of
// packed entries. A batch has `points` scalars: digit w of half h of scalar i is at
// (w * 2 + h) * points + i.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "bucket_keys.glsl"
#include "halves.glsl"

layout(push_constant) uniform Push { uint count; uint points; uint windows; uint window_bits; };
layout(set = 0, binding = 2, std430) writeonly buffer Digits { uint digits[]; };

const uint DIGIT_WORDS = HALF;
#include "window_digits.glsl"

ELEMENTWISE(e) {
    uint k[WORDS], c1[HALF], c2[HALF];
    scale_scalar(e, k, c1, c2);
    uint batch = e / points, point = e % points;
    for (uint half_ = 0; half_ < 2; ++half_) {
        uint z[HALF];
        make_half(half_, k, c1, c2, z);
        store_digits(z, (batch * windows * 2 + half_) * points + point, 2 * points);
    }
}
