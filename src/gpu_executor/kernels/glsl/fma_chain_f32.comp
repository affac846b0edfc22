// result[i] is the sum of eight chains of CHAIN_LENGTH dependent multiply-adds x = x * a[i] + a[i],
// without memory access between them. It measures the f32 arithmetic alone.
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(constant_id = ID_CHAIN_LENGTH) const uint CHAIN_LENGTH = 64; // a multiple of UNROLLED
const uint UNROLLED = 16;

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { float a[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Out { float result[]; };

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    vec4 factor = vec4(a[i]), x = vec4(0, 1, 2, 3), y = vec4(4, 5, 6, 7);
    for (uint k = 0; k < CHAIN_LENGTH / UNROLLED; ++k) {
        [[unroll]] for (uint j = 0; j < UNROLLED; ++j) {
            x = fma(x, factor, factor);
            y = fma(y, factor, factor);
        }
    }
    result[i] = dot(x + y, vec4(1));
}
