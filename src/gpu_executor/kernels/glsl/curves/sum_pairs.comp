// One level of the weighted sums of buckets. Let T be the sum of some buckets, and S[i] the sum of
// those of them whose number has bit i set. With them, the sum of (k + 1) times bucket k is
//
//     T + S[0] + 2 S[1] + 4 S[2] + ...
//
// A node is 2^terms / 2 neighbouring buckets: `terms` points T, S[0], S[1], .... Two neighbouring nodes
// become one with a point more: their points are added in pairs, and the new S is the T of the
// second node. All levels together take two additions a bucket.
//
// The groups from `count` - `nodes` on copy the new points, so that no subgroup has groups of both
// kinds but one.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(1)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint nodes; uint terms; };
LIMBS_IN(0, elements)
LIMBS_OUT(2, sums)

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        bool enabled = t < count, copies = t >= nodes * terms;
        uint node = copies ? t - nodes * terms : t / terms, term = copies ? terms : t % terms;
        uint first = 2 * node * terms + term, second = first + terms;
        if (copies) first = (2 * node + 1) * terms;
        bool infinity = load_elements(PQ enabled, first, TO_P);
        bool other_infinity = load_elements(PQ enabled && !copies, second, TO_Q);
        add_points(PQ enabled && !copies, false, infinity, other_infinity);
        if (enabled) store_sums(PQ node * (terms + 1) + term, infinity);
    }
}
