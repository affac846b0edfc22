// All elements reduced to one value; or, with BY_BLOCK, each block of 4,096 elements to one. Bit for
// bit as in wgsl/reduce.wgsl and wgsl/reduce_by_block.wgsl.
//
// The order of the operations depends only on the number of elements. Invocation l of 256 combines
// elements l, l + 256, ... of a block, and the results of the invocations are combined by halves.
// Without BY_BLOCK, work-group g of G combines the blocks g, g + G, ... before that, and writes its
// result to scratch memory. The work-group that finishes last combines the results of all, again
// invocation l those of the work-groups l, l + 256, ...; G is the number of blocks, at most 1,024
// (kernels/reduction.py).
//
// Define TYPE and the functions identity, combine, from_memory, to_memory, to_bits and from_bits
// before including this file.

#include "spec_ids.glsl"

const uint BLOCK = 4096;
const uint INVOCATIONS = 256;
layout(constant_id = ID_BY_BLOCK) const bool BY_BLOCK = false;

layout(local_size_x = 256) in;
layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly restrict buffer Input { TYPE elements[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Out { TYPE result[]; };
layout(set = 0, binding = 2, std430) coherent restrict buffer Scratch {
    uint finished;  // work-groups; begins as 0
    uint group_results[];
};

shared TYPE partials[INVOCATIONS];
shared bool is_last;

TYPE combine_block(uint block, TYPE value) {
    for (uint at = 0; at < BLOCK; at += INVOCATIONS) {
        uint i = block * BLOCK + at + gl_LocalInvocationIndex;
        value = combine(value, i < count ? from_memory(elements[i]) : identity());
    }
    return value;
}

// Combines the values of all invocations; the result is right in invocation 0.
TYPE combine_invocations(TYPE value) {
    uint local = gl_LocalInvocationIndex;
    partials[local] = value;
    barrier();
    for (uint part = INVOCATIONS / 2; part > 0; part /= 2) {
        if (local < part) partials[local] = combine(partials[local], partials[local + part]);
        barrier();
    }
    return partials[local];  // its own, so no other invocation writes it next
}

void main() {
    uint local = gl_LocalInvocationIndex, group = gl_WorkGroupID.x, groups = gl_NumWorkGroups.x;
    uint blocks = count / BLOCK + uint(count % BLOCK != 0);
    TYPE value = identity();
    for (uint block = group; block < blocks; block += groups) {
        value = combine_block(block, value);
        if (BY_BLOCK) {
            value = combine_invocations(value);
            if (local == 0) result[block] = to_memory(value);
            value = identity();
        }
    }
    if (BY_BLOCK) return;

    value = combine_invocations(value);
    if (local == 0) {
        group_results[group] = to_bits(value);
        memoryBarrierBuffer();
        is_last = atomicAdd(finished, 1) + 1 == groups;
    }
    barrier();
    if (!is_last) return;
    memoryBarrierBuffer();
    value = identity();
    for (uint i = local; i < groups; i += INVOCATIONS) {
        value = combine(value, from_bits(group_results[i]));
    }
    value = combine_invocations(value);
    if (local == 0) result[0] = to_memory(value);
}
