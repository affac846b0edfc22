// Sums of multiples of points in residues: a work-group adds the multiples that one digit of each of
// `length` neighbouring scalars asks for.
//
// Scalars are in two's complement. With 8 added to each of its digits of 4 bits, a scalar has the digits
// d + 8 for signed digits d from -8 to 7. A table has the multiples 1 to 8 of each point, of one set for
// all MSMs of the batch, or of a set for each. Work-group g adds `chunk_length` terms of window
// g / chunks % windows of MSM g / chunks / windows. Without scalars (`scalar_words` is 0) the terms are `terms`
// neighbouring points for each window of each MSM.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
#include "residues.glsl"
#include "residue_points.glsl"

layout(push_constant) uniform Push {
    uint count; uint terms; uint scalar_words; uint windows; uint shares_points; uint chunks; uint chunk_length;
};
layout(set = 0, binding = 0, std430) readonly buffer Scalars { uint scalars[]; };
RESIDUE_POINTS_IN(2, table)
RESIDUE_POINTS_OUT(3, sums)

const uint DIGIT_BITS = 4, MULTIPLES = 8;

// The signed digit of a scalar.
int get_digit(uint scalar, uint window) {
    uint bit = DIGIT_BITS * window, carry = 0, word = 0;
    [[dont_unroll]] for (uint i = 0; i <= bit / 32; ++i) {
        uint c1, c2;
        word = uaddCarry(uaddCarry(scalars[scalar * scalar_words + i], 0x88888888u, c1), carry, c2);
        carry = c1 + c2;
    }
    return int(word >> bit % 32 & 15) - 8;
}

void main() {
    load_lane();
    for (uint g = gl_WorkGroupID.x; g < count; g += gl_NumWorkGroups.x) {
        uint row = g / chunks, first = g % chunks * chunk_length, msm = row / windows;
        uint points = shares_points != 0 ? 0 : msm * terms;
        begin_sum(Point(ZERO, ONE_POINT, ZERO));
        [[dont_unroll]] for (uint i = first; i < min(first + chunk_length, terms); ++i) {
            int digit = 1;
            uint at = row * terms + i;
            if (scalar_words != 0) {
                digit = get_digit(msm * terms + i, row % windows);
                at = (points + i) * MULTIPLES + abs(digit) - 1;
            }
            if (digit != 0) add_point(load_table(at, digit < 0));
        }
        store_sums(g, get_sum());
    }
}
