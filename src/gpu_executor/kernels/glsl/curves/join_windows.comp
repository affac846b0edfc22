// The sum of 2^(w * window_bits) times window w, by Horner's rule, for each of `count` sums. The
// result is an XYZZ point of words, each number below p.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(1)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint windows; uint window_bits; };
LIMBS_IN(0, window_sums)
POINTS_OUT(2, result)

void main() {
    begin();
    EACH_GROUP(t) {
        bool enabled = t < count, infinity = true, other_infinity = true;
        uint steps = windows * (window_bits + 1);
        for (uint step = 0; step < steps; ++step) {
            bool doubles = step % (window_bits + 1) < window_bits;
            uint window = windows - 1 - step / (window_bits + 1);
            if (!doubles) {
                other_infinity = load_window_sums(enabled, t * windows + window, QX);
            }
            add_points(enabled, doubles, infinity, other_infinity);
        }
        if (enabled) store_result(t, infinity);
        wait_for_lanes();
    }
}
