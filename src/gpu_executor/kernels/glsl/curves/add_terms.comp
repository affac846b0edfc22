// Adds the terms of each element, which are points or, with scalars, multiples of points. There are
// three ways to choose them:
//
//     pairs       P[t] and Q[t], or P[t] and -Q[t]
//     segments    up to `length` neighbours in a row of P; element t is segment t % segments of row
//                 t / segments, and a row has `columns` points
//     multiples   k P[t] and, if there is a Q, 2^bits Q[t], where k is `bits` bits of the scalar from
//                 first_bit on: a doubling for each bit and an addition for each bit that is set
//
// Points are words of limb form (to_limb_form.comp), with 2 coordinates (affine) or 4 (XYZZ). Fewer
// points or scalars than elements repeat. The results are XYZZ points of words, each number below p.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(3)
#include "point_group.glsl"

layout(push_constant) uniform Push {
    uint count;
    uint p_coordinates; uint p_count;
    uint q_coordinates; uint negates; // q_coordinates is 0 if there is no Q
    uint columns; uint segments; uint length;
    uint bits; uint first_bit; uint scalar_count; uint scalar_words;
};
ELEMENTS_IN(0, p_number)
ELEMENTS_IN(1, q_number)
layout(set = 0, binding = 2, std430) readonly buffer Scalars { uint scalars[]; };
POINTS_OUT(4, result)

LOAD_WORDS(p)
LOAD_WORDS(q)

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        bool infinity = true, has_q = q_coordinates != 0;
        uint row = t / segments, first = t % segments * length;
        // The steps of multiples: add Q, then double and add for each bit.
        uint steps = bits != 0 ? 2 * bits + 1 : has_q ? 2 : length;
        for (uint step = 0; step < steps; ++step) {
            bool doubles = false, second = false, enabled = t < count;
            uint index = t;
            if (bits != 0 && step != 0) {
                doubles = step % 2 != 0;
                uint bit = first_bit + bits - (step + 1) / 2;
                uint word = scalars[t % scalar_count * scalar_words + bit / 32];
                enabled = enabled && (doubles || (word >> bit % 32 & 1) != 0);
                index = t % p_count;
            } else if (has_q) {
                second = bits != 0 || step == 1;
            } else if (bits != 0) {
                enabled = false;
            } else {
                index = row * columns + first + step;
                enabled = enabled && first + step < columns;
            }
            bool other_infinity = true;
            if (second) {
                other_infinity = load_q(PQ enabled, q_coordinates, index, negates != 0);
            } else if (!doubles) {
                other_infinity = load_p(PQ enabled, p_coordinates, index, false);
            }
            add_points(PQ enabled, doubles, infinity, other_infinity);
        }
        if (t < count) store_result(PQ t, infinity);
    }
}
