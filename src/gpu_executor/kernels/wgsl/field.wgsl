// The frame of every prime-field kernel; $operation is replaced by the operation.
//
// In memory an element is $words little-endian 32-bit words. The modulus is data, so one text
// serves every prime with that number of words. Lines are repeated for each word instead of a loop:
// words are then variables in registers; an array with a variable index would be in memory.

@group(0) @binding(0) var<storage, read> a: array<$stored>;
@group(0) @binding(1) var<storage, read> b: array<$stored>;
@group(0) @binding(2) var<storage, read_write> result: array<$stored>;

// The status word: element * 2 + argument of the first element of the call that is not below the
// modulus; 0xffffffff if there is none.
@group(0) @binding(3) var<storage, read_write> status: atomic<u32>;

fn report(element: u32, argument: u32) {
    let code = element * 2u + argument;
    // The plain read avoids most of the atomics when a whole array is out of range.
    if (code < atomicLoad(&status)) { atomicMin(&status, code); }
}

@compute @workgroup_size(work_group)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    //repeat word
    let p$w = param(${parameter}u);
    //end
    var i = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {
        if (i >= param(0u)) { return; }

        // Elements of 4, 8, 12 ... words move in 16-byte loads and stores.
        //repeat quad
        let a_quad$q = a[i * ${quads}u + ${q}u];
        let b_quad$q = b[i * ${quads}u + ${q}u];
        let a$w0 = a_quad$q.x; let a$w1 = a_quad$q.y; let a$w2 = a_quad$q.z; let a$w3 = a_quad$q.w;
        let b$w0 = b_quad$q.x; let b$w1 = b_quad$q.y; let b$w2 = b_quad$q.z; let b$w3 = b_quad$q.w;
        //end
        //repeat single
        let a$w = a[i * ${words}u + ${w}u];
        let b$w = b[i * ${words}u + ${w}u];
        //end

        // An element is below the modulus if subtracting the modulus borrows.
        var a_below = false;
        var b_below = false;
        //repeat word
        a_below = select(a$w < p$w, a$w <= p$w, a_below);
        b_below = select(b$w < p$w, b$w <= p$w, b_below);
        //end
        if (!a_below) { report(i, 0u); }
        if (!b_below) { report(i, 1u); }

$operation
        //repeat quad
        result[i * ${quads}u + ${q}u] = vec4<u32>(r$w0, r$w1, r$w2, r$w3);
        //end
        //repeat single
        result[i * ${words}u + ${w}u] = r$w;
        //end
        i += work_group;
    }
}
