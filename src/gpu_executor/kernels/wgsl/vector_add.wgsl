// result[i] = a[i] + b[i], in vec4: every access is bounds-checked, which costs a software device
// more than the addition (12.8 ns an element; 21 ns with single elements).

@group(0) @binding(0) var<storage, read> a: array<vec4<$type>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<$type>>;
@group(0) @binding(2) var<storage, read_write> result: array<vec4<$type>>;

@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let quads = (param(0u) + 3u) / 4u;
    var i = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        if (i < quads) { result[i] = a[i] + b[i]; }
        i += work_group;
    }
}
