// result is all elements of the input reduced to one value.
//
// The order of the operations depends only on the number of elements. Work-group g of G combines
// the blocks g, g + G, ...: invocation l of 256 combines elements l, l + 256, ... of each block, and
// the results of the invocations are combined by halves. The work-group that finishes last combines
// the results of all in the same way. Only atomic operations pass values between work-groups.

@group(0) @binding(0) var<storage, read> input: array<$type>;
@group(0) @binding(1) var<storage, read_write> result: array<$type>;
// The number of finished work-groups, which begins as 0, then the result of each work-group.
@group(0) @binding(2) var<storage, read_write> scratch: array<atomic<u32>>;

const BLOCK = ${block}u;
const INVOCATIONS = ${invocations}u;

$operation
var<workgroup> partials: array<$type, INVOCATIONS>;
var<workgroup> finished: u32;

// Combines the values of all invocations; the result is right in invocation 0.
fn combine_invocations(local: u32, value: $type) -> $type {
    partials[local] = value;
    workgroupBarrier();
    for (var half = INVOCATIONS / 2u; half > 0u; half /= 2u) {
        if (local < half) {
            partials[local] = combine(partials[local], partials[local + half]);
        }
        workgroupBarrier();
    }
    return partials[local];
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let count = param(0u);
    let blocks = count / BLOCK + u32(count % BLOCK != 0u);
    var value = identity();
    for (var block = group.x; block < blocks; block += groups.x) {
        for (var at = local; at < BLOCK; at += INVOCATIONS) {
            let i = block * BLOCK + at;
            if (i < count) { value = combine(value, from_memory(input[i])); }
        }
    }
    value = combine_invocations(local, value);
    if (local == 0u) { atomicStore(&scratch[1u + group.x], bitcast<u32>(value)); }
    storageBarrier();
    if (local == 0u) { finished = atomicAdd(&scratch[0], 1u) + 1u; }
    if (workgroupUniformLoad(&finished) != groups.x) { return; }
    storageBarrier();
    value = identity();
    for (var i = local; i < groups.x; i += INVOCATIONS) {
        value = combine(value, bitcast<$type>(atomicLoad(&scratch[1u + i])));
    }
    value = combine_invocations(local, value);
    if (local == 0u) { result[0] = to_memory(value); }
}
