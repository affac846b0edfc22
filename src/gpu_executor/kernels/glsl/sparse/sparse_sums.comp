// Products of a sparse matrix and a vector. Element t is the sum of one piece of a row: three words of
// `pieces` are its first record, the record behind its last one, and the index of its sum.
//
// A record is an entry of the matrix: RECORD_HEAD words, of which the last is the column, then the value.
// Unless `weighted`, the terms of a piece are elements of x themselves: the sums of other pieces.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint weighted;
#include "../element.glsl"

const uint RECORD_HEAD = 3;
layout(set = 0, binding = 0, std430) readonly buffer Records { uint records[]; };
ELEMENTS_IN(1, x)
layout(set = 0, binding = 2, std430) readonly buffer Pieces { uint pieces[]; };
ELEMENTS_OUT(3, sum)

void main() {
    EACH_ELEMENT(t) {
        ELEMENT sum, term, value;
        f_zero(sum);
        for (uint i = pieces[3 * t], end = pieces[3 * t + 1]; i < end; ++i) {
            uint record = i * (RECORD_HEAD + WORDS);
            load_x(weighted != 0 ? records[record + RECORD_HEAD - 1] : i, term);
            if (weighted != 0) {
                [[unroll]] for (uint k = 0; k < WORDS; ++k) {
                    value[k] = records[record + RECORD_HEAD + k];
                }
                f_mul(term, value, term);
            }
            f_add(sum, term, sum);
        }
        store_sum(pieces[3 * t + 2], sum);
    }
}
