// out[i] = a[i] + b[i]
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) readonly restrict buffer B { uint b[]; };
layout(set = 0, binding = 2, std430) writeonly restrict buffer Out { uint result[]; };

void main() {
    uint i = first_element();
    for (uint k = 0; k < PER_INVOCATION; ++k, i += gl_WorkGroupSize.x) {
        if (i < count) result[i] = a[i] + b[i];
    }
}
