// Splits each scalar into halves of half its length (halves.glsl). The scalars of a batch of `points`
// scalars become its first halves, then its second halves.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "halves.glsl"

layout(push_constant) uniform Push { uint count; uint points; };
layout(set = 0, binding = 2, std430) writeonly buffer Halves { uint halves[]; };

ELEMENTWISE(e) {
    uint k[WORDS], c1[HALF], c2[HALF];
    scale_scalar(e, k, c1, c2);
    for (uint half_ = 0; half_ < 2; ++half_) {
        uint z[HALF];
        make_half(half_, k, c1, c2, z);
        uint at = (e / points * 2 + half_) * points + e % points;
        [[unroll]] for (uint i = 0; i < HALF; ++i) halves[at * HALF + i] = z[i];
    }
}
