// The first step of a pass of the radix sort: histogram[d * tiles + t] is the number of keys in tile
// t whose digit is d.
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
#include "sort_digits.glsl"

layout(push_constant) uniform Push { uint count; uint shift; uint tiles; };
layout(set = 0, binding = 0, std430) readonly restrict buffer Keys { uint keys[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Histogram { uint histogram[]; };

shared uint tile_counts[RADIX];

void main() {
    uint local = gl_LocalInvocationIndex;
    for (uint tile = gl_WorkGroupID.x; tile < tiles; tile += gl_NumWorkGroups.x) {
        for (uint d = local; d < RADIX; d += gl_WorkGroupSize.x) tile_counts[d] = 0;
        barrier();
        [[unroll]] for (uint k = 0; k < KEYS; ++k) {
            uint i = tile * TILE + k * gl_WorkGroupSize.x + local;
            if (i < count) atomicAdd(tile_counts[compute_digit(keys[i], shift)], 1);
        }
        barrier();
        for (uint d = local; d < RADIX; d += gl_WorkGroupSize.x) {
            histogram[d * tiles + tile] = tile_counts[d];
        }
        barrier();
    }
}
