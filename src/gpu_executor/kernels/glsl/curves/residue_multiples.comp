// The multiples P, 2 P, ..., `multiples` P of affine points, in residues: a work-group computes those of a point.
//
// Of each set of `terms` terms the first `points` are its points, the others their images, whose x is
// multiplied by a cube root of unity. A point of words (x R, y R) is the projective point with Z = R.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
#include "residues.glsl"
#include "residue_points.glsl"

layout(push_constant) uniform Push { uint count; uint points; uint terms; uint multiples; };
ELEMENTS_IN(0, points_in)
RESIDUE_POINTS_OUT(2, table)

// The residues of words, and whether they are 0.
RESIDUE load_coordinate(uint index, out bool zero) {
    uint words[WORDS], any = 0;
    NUMBER x;
    load_points_in(index, words);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) any |= words[i];
    zero = any == 0;
    words_to_limbs(words, 0, x);
    uint64_t a = 0, b = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        a += WIDE(x[i], LANE_CONSTANT(WEIGHTS_A + i));
        b += WIDE(x[i], LANE_CONSTANT(WEIGHTS_B + i));
    }
    return RESIDUE(reduce(a, offset.x), reduce(b, offset.y));
}

void main() {
    load_lane();
    for (uint t = gl_WorkGroupID.x; t < count; t += gl_NumWorkGroups.x) {
        bool zero_x, zero_y;
        Point p;
        uint term = t % terms, point = t / terms * points + term % points;
        p.x = load_coordinate(2 * point, zero_x);
        p.y = load_coordinate(2 * point + 1, zero_y);
        p.z = RESIDUE(LANE_CONSTANT(WORD_FACTOR_A), LANE_CONSTANT(WORD_FACTOR_B));
        if (term >= points) p.x = mul(p.x, RESIDUE(LANE_CONSTANT(CUBE_ROOT_A), LANE_CONSTANT(CUBE_ROOT_B)));
        if (zero_x && zero_y) p = Point(ZERO, ONE_POINT, ZERO);
        store_table(t * multiples, p);
        Operand own = select_coordinates(p);
        begin_sum(p);
        [[dont_unroll]] for (uint k = 1; k < multiples; ++k) {
            add_point(own);
            store_table(t * multiples + k, get_sum());
        }
    }
}
