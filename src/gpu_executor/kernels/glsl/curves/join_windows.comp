// The sum of 2^(w * shift) times term w, by Horner's rule, for each of `count` sums of `terms` terms.
// With `unshifted` = 1, the sum of term 0 and of 2^(w * shift) times term w + 1.
// The sums are limbs or, with `last`, XYZZ points of words, each number below p.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(1)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint terms; uint shift; uint unshifted; uint last; };
LIMBS_IN(0, elements)
LIMBS_OUT(2, sums)
POINTS_OUT(3, result)

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        bool enabled = t < count, infinity = true;
        for (uint term = terms; term-- > 0;) {
            uint times = term == 0 && unshifted != 0 ? 0 : shift, at = t * terms + term;
#ifdef SERIAL
            // One call of add_points, which lavapipe inlines: a second one doubles the compile time.
            for (uint i = 0; i <= times; ++i) {
                bool doubles = i < times, other_infinity = true;
                if (!doubles) other_infinity = load_elements(enabled, at, TO_Q);
                add_points(enabled, doubles, infinity, other_infinity);
            }
#else
            double_points(PQ enabled, times, infinity);
            bool other_infinity = load_elements(PQ enabled, at, TO_Q);
            add_points(PQ enabled, false, infinity, other_infinity);
#endif
        }
        if (enabled) {
            if (last != 0) store_result(PQ t, infinity);
            else store_sums(PQ t, infinity);
        }
    }
}
