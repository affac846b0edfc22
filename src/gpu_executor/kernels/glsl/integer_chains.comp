// result[i] is the sum of four chains of CHAIN_LENGTH dependent steps on 32-bit words, each chain with
// four words of its own, which begin with numbers made of a[i]. There is no memory access between
// them: the kernel measures the integer units alone. A step is one of
//     MIX 0   half of a quarter round of BLAKE3, with other rotations: 6 operations, which are a sum of
//             three words, an exclusive or, a rotation, a sum, an exclusive or, a rotation
//     MIX 1   6 operations of Keccak: four combinations of three words, two rotations
//     MIX 2   6 combinations of three words
//     MIX 3   a step of RIPEMD-160, with other rotations: 6 operations, which are a combination of three
//             words, a sum of four (two operations), a rotation, a sum, a rotation
// A combination of three words is one instruction on NVIDIA GPUs, and so is a sum of three words.
#version 460
#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(constant_id = ID_CHAIN_LENGTH) const uint CHAIN_LENGTH = 64; // a multiple of UNROLLED
layout(constant_id = ID_MIX) const uint MIX = 0;
const uint CHAINS = 4, UNROLLED = 8;

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { uint a[]; };
layout(set = 0, binding = 1, std430) writeonly restrict buffer Out { uint result[]; };

uint rotate(uint x, uint n) { return x << n | x >> (32 - n); }

uint choose(uint x, uint y, uint z) { return x ^ (~y & z); }

void mix_words(inout uvec4 x, uint word) {
    if (MIX == 0) {
        x.x += x.y + word;
        x.w = rotate(x.w ^ x.x, 13);
        x.z += x.w;
        x.y = rotate(x.y ^ x.z, 25);
        return;
    }
    if (MIX == 3) {
        uint sum = rotate(x.x + choose(x.y, x.z, x.w) + x.w + word, 13) + x.y;
        x = uvec4(sum, x.x, rotate(x.y, 10), x.z);
        return;
    }
    x.x = choose(x.x, x.y, x.z);
    x.y = choose(x.y, x.z, x.w);
    if (MIX == 1) x.x = rotate(x.x, 13);
    else x.x = choose(x.x, x.z, word);
    x.z = choose(x.z, x.w, x.x);
    x.w = choose(x.w, x.x, x.y);
    if (MIX == 1) x.y = rotate(x.y, 25);
    else x.y = choose(x.y, word, x.w);
}

void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i >= count) return;
    uint word = a[i];
    uvec4 x[CHAINS];
    [[unroll]] for (uint c = 0; c < CHAINS; ++c) x[c] = word * uvec4(1, 3, 5, 7) + c;
    for (uint k = 0; k < CHAIN_LENGTH / UNROLLED; ++k) {
        [[unroll]] for (uint j = 0; j < UNROLLED; ++j) {
            [[unroll]] for (uint c = 0; c < CHAINS; ++c) mix_words(x[c], word);
        }
    }
    uint sum = 0;
    [[unroll]] for (uint c = 0; c < CHAINS; ++c) sum += x[c].x + x[c].y + x[c].z + x[c].w;
    result[i] = sum;
}
