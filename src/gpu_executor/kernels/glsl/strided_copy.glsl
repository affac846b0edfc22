// Copies elements from one array to another, both with any strides. Define TYPE before including
// this file: an element, or a part of one. Without it the parts have UNIT_BITS bits of a word.
//
// Element (i0, i1, i2, i3) is at source_start + i0 * source_strides[0] + ... of the source, and
// likewise in the target. Strides may be negative or 0; they count parts, and wrap around modulo
// 2^32.

#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(push_constant) uniform Push {
    uint count;
    uint source_start, target_start;
    uint lengths[4];
    uint source_strides[4];
    uint target_strides[4];
};
#ifdef TYPE
layout(set = 0, binding = 0, std430) readonly buffer Source { TYPE source[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Target { TYPE target[]; };

void copy_part(uint from, uint to) { target[to] = source[from]; }
#else
layout(constant_id = ID_UNIT_BITS) const uint UNIT_BITS = 8;
const uint PARTS = 32 / UNIT_BITS, MASK = (1u << UNIT_BITS) - 1;
layout(set = 0, binding = 0, std430) readonly buffer Source { uint source[]; };
layout(set = 0, binding = 1, std430) buffer Target { uint target[]; };

// The other bits of the word belong to other invocations, or to nothing that is copied.
void copy_part(uint from, uint to) {
    uint part = source[from / PARTS] >> (from % PARTS * UNIT_BITS) & MASK;
    uint shift = to % PARTS * UNIT_BITS;
    atomicAnd(target[to / PARTS], ~(MASK << shift));
    atomicOr(target[to / PARTS], part << shift);
}
#endif

void main() {
    // A loop, because a device limits the number of work-groups.
    for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        uint rest = i, from = source_start, to = target_start;
        for (int axis = 3; axis >= 0; --axis) {
            uint at = rest % lengths[axis];
            rest /= lengths[axis];
            from += at * source_strides[axis];
            to += at * target_strides[axis];
        }
        copy_part(from, to);
    }
}
