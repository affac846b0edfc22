// result[i] is block i of the input reduced to one value.
//
// The order of the operations depends only on the number of elements: invocation l of 256 combines
// elements l, l + 256, ... of a block, then the two halves of the work-group are combined until one
// value is left. So f32 sums do not depend on the number of work-groups.

@group(0) @binding(0) var<storage, read> input: array<$type>;
@group(0) @binding(1) var<storage, read_write> result: array<$type>;

const BLOCK = ${block}u;
const INVOCATIONS = ${invocations}u;

$operation
var<workgroup> partials: array<$type, INVOCATIONS>;

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let count = param(0u);
    let blocks = count / BLOCK + u32(count % BLOCK != 0u);
    let stride = groups.x * groups.y;
    for (var block = group.y * groups.x + group.x; block < blocks; block += stride) {
        var value = identity();
        for (var at = local; at < BLOCK; at += INVOCATIONS) {
            let i = block * BLOCK + at;
            if (i < count) { value = combine(value, from_memory(input[i])); }
        }
        partials[local] = value;
        workgroupBarrier();
        for (var half = INVOCATIONS / 2u; half > 0u; half /= 2u) {
            if (local < half) {
                partials[local] = combine(partials[local], partials[local + half]);
            }
            workgroupBarrier();
        }
        // No barrier is needed: only invocation 0 writes partials[0] next, after it has read it.
        if (local == 0u) { result[block] = to_memory(partials[0]); }
    }
}
