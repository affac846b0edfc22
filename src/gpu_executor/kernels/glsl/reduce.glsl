// result[i] is block i of the input reduced to one value, bit for bit as in wgsl/reduce.wgsl.
//
// The order of the operations depends only on the number of elements: invocation l of 256 combines
// elements l, l + 256, ... of a block, then the two halves of the work-group are combined until one
// value is left. So float sums do not depend on the number of work-groups.
//
// Define TYPE and the functions identity, combine, from_memory and to_memory before including this
// file.

const uint BLOCK = 4096;
const uint INVOCATIONS = 256;

layout(local_size_x = 256) in;
layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly restrict buffer Input { TYPE elements[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Out { TYPE result[]; };

shared TYPE partials[INVOCATIONS];

void main() {
    uint local = gl_LocalInvocationID.x;
    uint blocks = count / BLOCK + uint(count % BLOCK != 0);
    for (uint block = gl_WorkGroupID.x; block < blocks; block += gl_NumWorkGroups.x) {
        TYPE value = identity();
        for (uint at = local; at < BLOCK; at += INVOCATIONS) {
            uint i = block * BLOCK + at;
            if (i < count) value = combine(value, from_memory(elements[i]));
        }
        partials[local] = value;
        barrier();
        for (uint part = INVOCATIONS / 2; part > 0; part /= 2) {
            if (local < part) partials[local] = combine(partials[local], partials[local + part]);
            barrier();
        }
        // No barrier is needed: only invocation 0 writes partials[0] next, after it has read it.
        if (local == 0) result[block] = to_memory(partials[0]);
    }
}
