// Counts elements by their lowest byte; the soak test's kernel whose output must begin with zeros
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) restrict buffer Histogram { uint histogram[]; };

void main() {
    uint i = first_element();
    for (uint k = 0; k < PER_INVOCATION; ++k, i += gl_WorkGroupSize.x) {
        if (i < count) atomicAdd(histogram[a[i] & 255u], 1u);
    }
}
