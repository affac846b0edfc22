// The first pass of an exclusive scan: sums[g] is the sum of chunk g of the values, modulo 2^32.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "group_scan.glsl"

layout(push_constant) uniform Push { uint count; uint chunk; };
layout(set = 0, binding = 0, std430) readonly restrict buffer Values { uint values[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Sums { uint sums[]; };

void main() {
    uint start = gl_WorkGroupID.x * chunk, end = start + min(chunk, count - start);
    uint sum = 0, total;
    for (uint i = start + invocation_index(); i < end; i += gl_WorkGroupSize.x) sum += values[i];
    scan_group(sum, total);
    if (gl_LocalInvocationIndex == 0) sums[gl_WorkGroupID.x] = total;
}
