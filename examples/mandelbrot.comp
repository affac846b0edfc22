#version 460
// One point of the plane for each element: how many steps z -> z^2 + c until |z| is 2 or more.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { uint count; uint most; };
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Y { float y[]; };
layout(set = 0, binding = 2) writeonly buffer Steps { uint steps[]; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    // precise: every product and every sum is rounded by itself, as NumPy rounds them.
    precise float a = 0, b = 0, aa = 0, bb = 0;
    uint n = 0;
    while (n < most && aa + bb < 4) {
        b = 2 * a * b + y[i];
        a = aa - bb + x[i];
        aa = a * a;
        bb = b * b;
        n++;
    }
    steps[i] = n;
}
