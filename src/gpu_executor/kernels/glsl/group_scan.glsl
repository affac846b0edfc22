// Prefix sums of one integer per invocation over a work-group of any subgroup size.
//
// The invocations are numbered by invocation_index(): subgroup by subgroup, because Vulkan leaves
// open how gl_LocalInvocationIndex is related to subgroups. Every subgroup of a work-group has
// equally many invocations: a work-group size that is a power of two leaves none incomplete.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;

shared uint subgroup_sums[gl_WorkGroupSize.x];  // at most as many subgroups as invocations

// The invocations of this subgroup. gl_SubgroupSize is only an upper bound of them.
uint count_lanes() {
    return subgroupBallotBitCount(subgroupBallot(true));
}

uint invocation_index() {
    return gl_SubgroupID * count_lanes() + gl_SubgroupInvocationID;
}

// Returns the sum of x over the invocations before this one, and over all invocations. All
// invocations of the work-group call it together; it begins and ends with a barrier.
uint scan_group(uint x, out uint total) {
    uint before = subgroupExclusiveAdd(x), own = subgroupAdd(x);
    barrier();
    if (subgroupElect()) subgroup_sums[gl_SubgroupID] = own;
    barrier();
    total = 0;
    for (uint s = 0; s < gl_NumSubgroups; ++s) {
        if (s < gl_SubgroupID) before += subgroup_sums[s];
        total += subgroup_sums[s];
    }
    return before;
}
