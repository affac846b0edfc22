// The sum of 2^(w * shift) times term w, as join_windows.comp, in residues: a work-group computes a sum.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
#include "residues.glsl"
#define LIMBS_BINDING 2
#define RESULT_BINDING 3
#include "residue_points.glsl"

layout(push_constant) uniform Push { uint count; uint terms; uint shift; uint unshifted; uint last; };
RESIDUES_IN(0, elements)

// A term: (X ZZZ, Y ZZ, ZZ ZZZ).
Point load_term(uint at) {
    bool unused, infinity;
    uint row = OWN_ROW;
    RESIDUE zz = load_elements(at, 2, infinity);
    RESIDUE x = load_elements(at, row == 0 ? 0 : 1, unused);
    RESIDUE zzz = load_elements(at, 3, unused);
    share(mul(by_row(x, x, zz, ZERO, ZERO, ZERO), by_row(zzz, zz, zzz, ZERO, ZERO, ZERO)));
    Point p = Point(product(0), product(1), product(2));
    if (infinity) p = Point(ZERO, ONE_POINT, ZERO);
    return p;
}

void main() {
    load_lane();
    for (uint t = gl_WorkGroupID.x; t < count; t += gl_NumWorkGroups.x) {
        begin_sum(Point(ZERO, ONE_POINT, ZERO));
        for (uint term = terms; term-- > 0;) {
            uint times = term == 0 && unshifted != 0 ? 0 : shift;
            if (term + 1 < terms) {
                [[dont_unroll]] for (uint i = 0; i < times; ++i) double_point();
            }
            Point p = get_sum();
            Operand q = select_coordinates(load_term(t * terms + term));
            begin_sum(p);
            add_point(q);
        }
        store_xyzz(get_sum(), t, last != 0);
    }
}
