// Lowers the status word to the index of the first element whose words are all 0.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(push_constant) uniform Push { uint count; uint words; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) buffer Status { uint status; };

ELEMENTWISE(i) {
    uint any = 0;
    for (uint word = 0; word < words; ++word) any |= a[i * words + word];
    if (any == 0 && i < status) atomicMin(status, i);
}
