// result[i]: block i of the input reduced to one value; the same as wgsl/reduce.wgsl, bit for bit.
//
// Which elements meet in which order depends on nothing but their number: invocation l of the 256
// takes elements l, l + 256, ... of a block one after the other, then halves of the work-group are
// combined until one value is left. So float sums are the same however many work-groups there are.
//
// Whoever includes this has defined TYPE, and the functions identity, combine, from_memory and
// to_memory on it.

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
        // Invocation 0 alone goes on to write partials[0], and it reads it first.
        if (local == 0) result[block] = to_memory(partials[0]);
    }
}
