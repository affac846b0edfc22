// What every prime-field kernel shares: one SPIR-V for every prime.
//
// In memory an element is WORDS little-endian 32-bit words. The number of words is a specialization
// constant, so that after specialization every array has a fixed size and every loop unrolls; the
// modulus is data in the push constants, which costs nothing against one compiled in.

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

layout(constant_id = 2) const uint WORDS = 12;

const uint ARGUMENTS = 2;

// 104 bytes: a modulus of up to 24 words or 26 limbs. With `count` it is within the 128 bytes of push
// constants that every Vulkan device has.
layout(push_constant) uniform Push { uint count; uint modulus[26]; };

// Each buffer is seen as single words and as groups of four: elements of 4, 8, 12 ... words move in
// 16-byte loads and stores (3.2 TB/s against 2.5 TB/s with 8-byte ones on an NVIDIA H200).
layout(set = 0, binding = 0, std430) readonly buffer A1 { uint a1[]; };
layout(set = 0, binding = 0, std430) readonly buffer A4 { uvec4 a4[]; };
layout(set = 0, binding = 1, std430) readonly buffer B1 { uint b1[]; };
layout(set = 0, binding = 1, std430) readonly buffer B4 { uvec4 b4[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Out1 { uint out1[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Out4 { uvec4 out4[]; };

// The status word: the smallest element * ARGUMENTS + argument that is not below the modulus, so the
// first bad index of the chunk, and 0xffffffff as long as there is none.
layout(set = 0, binding = 3, std430) buffer Status { uint status; };

void report(uint element, uint argument) {
    uint code = element * ARGUMENTS + argument;
    // The plain read spares a storm of atomics when a whole array is bad.
    if (code < status) atomicMin(status, code);
}

#define LOAD(name, from1, from4)                                                        \
    void name(uint element, out uint x[WORDS]) {                                        \
        if (WORDS % 4 == 0) {                                                           \
            [[unroll]] for (uint i = 0; i < WORDS / 4; ++i) {                           \
                uvec4 v = from4[element * (WORDS / 4) + i];                             \
                x[4 * i] = v.x; x[4 * i + 1] = v.y; x[4 * i + 2] = v.z; x[4 * i + 3] = v.w; \
            }                                                                           \
        } else {                                                                        \
            [[unroll]] for (uint i = 0; i < WORDS; ++i) x[i] = from1[element * WORDS + i]; \
        }                                                                               \
    }
LOAD(load_a, a1, a4)
LOAD(load_b, b1, b4)

void store(uint element, uint x[WORDS]) {
    if (WORDS % 4 == 0) {
        [[unroll]] for (uint i = 0; i < WORDS / 4; ++i) {
            out4[element * (WORDS / 4) + i] =
                uvec4(x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]);
        }
    } else {
        [[unroll]] for (uint i = 0; i < WORDS; ++i) out1[element * WORDS + i] = x[i];
    }
}
