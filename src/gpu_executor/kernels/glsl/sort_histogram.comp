// The first step of a pass of the radix sort: how often each digit occurs in each tile.
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
#include "sort_digits.glsl"

layout(set = 0, binding = 0, std430) readonly restrict buffer Keys { uint keys[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Histogram { uint histogram[]; };

shared uint tile_counts[RADIX];

void main() {
    uint local = gl_LocalInvocationIndex;
    EACH_TILE(i) {
        Tile tile = find_tile(i);
        for (uint d = local; d < RADIX; d += gl_WorkGroupSize.x) tile_counts[d] = 0;
        barrier();
        [[unroll]] for (uint k = 0; k < KEYS; ++k) {
            uint at = k * gl_WorkGroupSize.x + local;
            if (at < tile.size) {
                atomicAdd(tile_counts[compute_digit(keys[tile.start + at], tile.row)], 1);
            }
        }
        barrier();
        for (uint d = local; d < RADIX; d += gl_WorkGroupSize.x) {
            histogram[count_index(tile, d)] = tile_counts[d];
        }
        barrier();
    }
}
