#version 460
// One point of the plane for each element: how many steps of z -> z^2 + c until it is gone.
layout(local_size_x_id = 0) in;
layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0) readonly buffer X { float x[]; };
layout(set = 0, binding = 1) readonly buffer Y { float y[]; };
layout(set = 0, binding = 2) writeonly buffer Steps { uint steps[]; };

const uint MOST = 200;

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    vec2 c = vec2(x[i], y[i]), z = vec2(0);
    uint n = 0;
    while (n < MOST && dot(z, z) < 4) {
        z = vec2(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c;
        n++;
    }
    steps[i] = n;
}
