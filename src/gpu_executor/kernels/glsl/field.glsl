// What every prime-field kernel that checks its elements shares: one SPIR-V for every prime.
//
// The modulus is data in the push constants, which costs nothing against one compiled in.

#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

const uint ARGUMENTS = 2;

#define KERNEL_PUSH
#include "push.glsl"

#include "words.glsl"
#include "words_memory.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_OUT(2, result)

// The status word: the smallest element * ARGUMENTS + argument that is not below the modulus, so
// the first bad index of the chunk, and 0xffffffff as long as there is none.
layout(set = 0, binding = 3, std430) buffer Status { uint status; };

void report(uint element, uint argument) {
    uint code = element * ARGUMENTS + argument;
    // The plain read spares a storm of atomics when a whole array is bad.
    if (code < status) atomicMin(status, code);
}
