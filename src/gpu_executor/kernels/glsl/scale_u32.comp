// result[i] = factor * a[i] + offset; the soak test's kernel with parameters
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; uint factor; uint offset; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Result { uint result[]; };

void main() {
    uint i = first_element();
    for (uint k = 0; k < PER_INVOCATION; ++k, i += gl_WorkGroupSize.x) {
        if (i < count) result[i] = factor * a[i] + offset;
    }
}
