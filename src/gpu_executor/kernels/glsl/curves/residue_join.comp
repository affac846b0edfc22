// The sum of 2^(w * shift) times term w, for points in residues: one work-group a sum, XYZZ points of words.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
#include "residues.glsl"
#define RESULT_BINDING 2
#include "residue_points.glsl"

layout(push_constant) uniform Push { uint count; uint terms; uint shift; };
RESIDUE_POINTS_IN(0, elements)

void main() {
    load_lane();
    for (uint t = gl_WorkGroupID.x; t < count; t += gl_NumWorkGroups.x) {
        begin_sum(Point(ZERO, ONE_POINT, ZERO));
        for (uint term = terms; term-- > 0;) {
            Operand q = load_elements(t * terms + term, false);
            if (term + 1 < terms) {
                [[dont_unroll]] for (uint i = 0; i < shift; ++i) double_point();
            }
            add_point(q);
        }
        store_xyzz(get_sum(), t, true);
    }
}
