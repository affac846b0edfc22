// state[i] = 1664525 * state[i] + increment[i]: a step of linear congruential generators, in place;
// the soak test's kernel with an in-out argument
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) restrict buffer State { uint state[]; };
layout(set = 0, binding = 1, std430) readonly restrict buffer Increment { uint increment[]; };

void main() {
    uint i = first_element();
    for (uint k = 0; k < PER_INVOCATION; ++k, i += gl_WorkGroupSize.x) {
        if (i < count) state[i] = 1664525u * state[i] + increment[i];
    }
}
