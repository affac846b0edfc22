// The code of each record of a sparse matrix (sparse_sums.comp): 0, or k if word k - 1 of the record is not
// below its limit, where the value counts as one word behind the head and its limit is p. The key of a
// record numbers its matrix and row: word 1 * limit0 + word 0.
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint limit0; uint limit1; uint limit2;
#include "../element.glsl"

const uint RECORD_HEAD = 3;
layout(set = 0, binding = 0, std430) readonly buffer Records { uint records[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Codes { uint codes[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Keys { uint keys[]; };

ELEMENTWISE(i) {
    uint record = i * (RECORD_HEAD + WORDS), code = 0;
    ELEMENT value, p;
    [[unroll]] for (uint k = 0; k < WORDS; ++k) value[k] = records[record + RECORD_HEAD + k];
    modulus_words(p);
    if (!below_words(value, p)) code = 4;
    if (records[record + 2] >= limit2) code = 3;
    if (records[record + 1] >= limit1) code = 2;
    if (records[record] >= limit0) code = 1;
    codes[i] = code;
    keys[i] = records[record + 1] * limit0 + records[record];
}
