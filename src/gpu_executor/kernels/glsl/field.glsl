// Shared by the prime-field kernels that check their elements. One SPIR-V module serves every
// prime: the modulus is in the push constants, which is as fast as a modulus that is compiled in.

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

// The status word: element * ARGUMENTS + argument of the first element of the chunk that is not
// below the modulus; 0xffffffff if there is none.
layout(set = 0, binding = 3, std430) buffer Status { uint status; };

void report(uint element, uint argument) {
    uint code = element * ARGUMENTS + argument;
    // The plain read avoids most of the atomics when a whole array is out of range.
    if (code < status) atomicMin(status, code);
}
