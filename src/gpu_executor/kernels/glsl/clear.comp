// Writes zeros, in units of 16 bytes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) writeonly buffer Result { uvec4 result[]; };

ELEMENTWISE(i) {
    result[i] = uvec4(0);
}
