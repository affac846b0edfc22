// The multiples 2^(k * shift) P of each of `count` points, for k below `tables`. Points are words of limb
// form (to_limb_form.comp), with 2 coordinates (affine) or 4 (XYZZ). The results are XYZZ points of words,
// each number below p; those of one k are neighbours.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(1)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint coordinates; uint tables; uint shift; };
ELEMENTS_IN(0, p_number)
LOAD_WORDS(p)
POINTS_OUT(2, result)

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        bool enabled = t < count, infinity = true;
        for (uint k = 0; k < tables; ++k) {
#ifdef SERIAL
            // One call of add_points, which lavapipe inlines: a second one doubles the compile time.
            for (uint i = 0; i < (k == 0 ? 1 : shift); ++i) {
                bool other_infinity = true;
                if (k == 0) other_infinity = load_p(enabled, coordinates, t, false);
                add_points(enabled, k != 0, infinity, other_infinity);
            }
#else
            if (k == 0) {
                bool other_infinity = load_p(PQ enabled, coordinates, t, false);
                add_points(PQ enabled, false, infinity, other_infinity);
            } else {
                double_points(PQ enabled, shift, infinity);
            }
#endif
            if (enabled) store_result(PQ k * count + t, infinity);
        }
    }
}
