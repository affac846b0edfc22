// The second pass of an exclusive scan: result[i] = values[0] + ... + values[i - 1], modulo 2^32.
//
// Work-group g computes chunk g. It begins with the sum of all chunks before, whose sums it adds up
// itself: there are few chunks. With a single chunk there is no first pass, and sums is not read.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "group_scan.glsl"

const uint PER_STEP = 8;  // values that an invocation adds in sequence

layout(push_constant) uniform Push { uint count; uint chunk; };
layout(set = 0, binding = 0, std430) readonly restrict buffer Values { uint values[]; };
layout(set = 0, binding = 1, std430) readonly buffer Sums { uint sums[]; };
layout(set = 0, binding = 2, std430) writeonly restrict buffer Result { uint result[]; };

void main() {
    uint invocation = invocation_index();
    uint start = gl_WorkGroupID.x * chunk, length = min(chunk, count - start);
    uint sum = 0, before, total;
    for (uint g = invocation; g < gl_WorkGroupID.x; g += gl_WorkGroupSize.x) sum += sums[g];
    scan_group(sum, before);
    for (uint done = 0; done < length; done += PER_STEP * gl_WorkGroupSize.x) {
        uint first = done + PER_STEP * invocation, own[PER_STEP];
        sum = 0;
        for (uint k = 0; k < PER_STEP; ++k) {
            own[k] = first + k < length ? values[start + first + k] : 0;
            sum += own[k];
        }
        uint running = before + scan_group(sum, total);
        for (uint k = 0; k < PER_STEP; ++k) {
            if (first + k < length) result[start + first + k] = running;
            running += own[k];
        }
        before += total;
    }
}
