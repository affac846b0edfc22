// How invocations are assigned to elements, the same for every element-wise kernel.
//
// The plan chooses the work-group size and the number of elements per invocation. Adjacent
// invocations process adjacent elements, so that loads coalesce. In kernels compiled with -DPACKED,
// vectors of elements take the place of elements (packed.glsl).

#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(constant_id = ID_PER_INVOCATION) const uint PER_INVOCATION = 1;

// Whether a grid-stride loop covers all `count` elements when there are fewer work-groups than
// elements need.
layout(constant_id = ID_GRID_STRIDE) const bool GRID_STRIDE = true;

uint first_element() {
    return gl_WorkGroupID.x * (gl_WorkGroupSize.x * PER_INVOCATION) + gl_LocalInvocationID.x;
}

// The grid stride: the number of elements that all work-groups process in one iteration.
uint grid_elements() {
    return gl_NumWorkGroups.x * (gl_WorkGroupSize.x * PER_INVOCATION);
}

// Runs the statement that follows for each element i of this invocation. No sum overflows: a
// binding has at most 2^32 bytes, so `count` is far below 2^32.
#define EACH_ELEMENT(i)                                                                        \
    for (uint i##_first = first_element(); i##_first < count; i##_first += grid_elements())    \
        for (uint i = i##_first, i##_k = 0; i##_k < PER_INVOCATION && i < count;               \
             ++i##_k, i += gl_WorkGroupSize.x)

#ifdef PACKED
// The items are the full vectors, followed by the remaining single elements. process_element is
// called in two places, so that the code for vectors has no further condition.
#define ITEMS (count / PACKED + count % PACKED)
#define PROCESS_ITEM(i)                                                                        \
    if (i < count / PACKED) { single = false; process_element(i); }                            \
    else if (i < ITEMS) { single = true; process_element(count - (ITEMS - i)); }
#else
#define ITEMS count
#define PROCESS_ITEM(i) if (i < count) process_element(i);
#endif

// Defines main, which runs the block that follows for each element i. The condition is at the end
// of the loop, so that drivers see that the loop runs once if each invocation has at most one
// element. With the condition first, lavapipe computes a third fewer 255-bit products per second.
#define ELEMENTWISE(i)                                                                         \
    void process_element(uint i);                                                              \
    void main() {                                                                              \
        uint first = first_element(), k = 0;                                                   \
        do {                                                                                   \
            uint i = first + k * gl_WorkGroupSize.x;                                           \
            PROCESS_ITEM(i)                                                                    \
            if (++k == PER_INVOCATION) { first += grid_elements(); k = 0; }                    \
        } while (GRID_STRIDE ? first < ITEMS : k != 0);                                        \
    }                                                                                          \
    void process_element(uint i)
