// The lengths of runs after 1, 2, ... rounds that halve them, rounded up: `runs` of each round, and a 0
// behind the last.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; uint runs; };
layout(set = 0, binding = 0, std430) readonly buffer Starts { uint starts[]; };
layout(set = 0, binding = 1, std430) readonly buffer Ends { uint ends[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Lengths { uint lengths[]; };

ELEMENTWISE(i) {
    uint run = i % runs, halvings = i / runs + 1;
    uint length = i + 1 < count ? ends[run] - starts[run] : 0;
    lengths[i] = (length + (1u << halvings) - 1) >> halvings;
}
