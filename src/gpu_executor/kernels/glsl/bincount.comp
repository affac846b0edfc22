// Adds to counts[v] the number of elements v, for v below `bins`. Lowers the status word to the
// index of the first element that is not.
//
// With SHARED_BINS of at least `bins`, a work-group counts in shared memory first, and adds its
// counts to those of the others at the end.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(constant_id = ID_SHARED_BINS) const uint SHARED_BINS = 1;  // 1: none

layout(push_constant) uniform Push { uint count; uint bins; };
layout(set = 0, binding = 0, std430) readonly restrict buffer Elements { uint elements[]; };
layout(set = 0, binding = 1, std430) restrict buffer Counts { uint counts[]; };
layout(set = 0, binding = 2, std430) buffer Status { uint status; };

shared uint group_counts[SHARED_BINS];

void main() {
    if (SHARED_BINS > 1) {
        for (uint v = gl_LocalInvocationIndex; v < bins; v += gl_WorkGroupSize.x) {
            group_counts[v] = 0;
        }
        barrier();
    }
    EACH_ELEMENT(i) {
        uint v = elements[i];
        if (v >= bins) {
            if (i < status) atomicMin(status, i);
        } else if (SHARED_BINS > 1) {
            atomicAdd(group_counts[v], 1);
        } else {
            atomicAdd(counts[v], 1);
        }
    }
    if (SHARED_BINS > 1) {
        barrier();
        for (uint v = gl_LocalInvocationIndex; v < bins; v += gl_WorkGroupSize.x) {
            if (group_counts[v] > 0) atomicAdd(counts[v], group_counts[v]);
        }
    }
}
