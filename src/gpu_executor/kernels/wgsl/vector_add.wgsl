// out[i] = a[i] + b[i]

@group(0) @binding(0) var<storage, read> a: array<$type>;
@group(0) @binding(1) var<storage, read> b: array<$type>;
@group(0) @binding(2) var<storage, read_write> result: array<$type>;

@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    var i = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        if (i < param(0u)) { result[i] = a[i] + b[i]; }
        i += work_group;
    }
}
