// One level of the weighted sum of buckets. The buckets of a window are split into segments of
// `length` points. With e[j] the point j of a segment, the first level computes
//
//     total = sum of e[j]        weighted = sum of (j + 1) e[j]
//
// and every other level, whose points e[j] are the totals and v[j] the weighted sums of the level
// before,
//
//     total = sum of e[j]        weighted = sum of v[j] + 2^doublings * sum of j e[j]
//
// where 2^doublings is the number of buckets of a point. After the level with one segment a window
// has the sum of (k + 1) times bucket k. Sums of j e[j] are sums of running sums: two additions a
// point.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(2)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint length; uint doublings; uint first_level; };
LIMBS_IN(0, elements)
LIMBS_IN(1, weighted_elements)
LIMBS_OUT(3, totals)
LIMBS_OUT(4, weighted)

// The point that is not in the registers of P: the total, or the sum of running totals.
shared uint saved[4 * COORDINATE_LIMBS * GROUPS];

void swap_points() {
    EACH_LIMB(i) {
        EACH_COORDINATE(k) {
            uint at = (k * COORDINATE_LIMBS + i) * GROUPS + gl_LocalInvocationID.x / LANES;
            uint p = get_limb(PX + k, i);
            set_limb(PX + k, i, saved[at]);
            saved[at] = p;
        }
    }
}

void main() {
    begin();
    EACH_GROUP(t) {
        bool enabled = t < count, first = first_level != 0;
        bool infinity = true, saved_infinity = true, swapped = false;
        // The steps: for j from length - 1 to 0, add e[j] to the total and the total to the sum (not
        // for j = 0 in later levels); double the sum; add each v[j].
        uint pairs = 2 * length, doubled = pairs + (first ? 0 : doublings);
        uint steps = first ? pairs : doubled + length;
        for (uint step = 0; step < steps; ++step) {
            if (!first && step + 1 == pairs) continue;
            bool to_total = step < pairs && step % 2 == 0;
            bool doubles = step >= pairs && step < doubled, other_infinity = infinity;
            if (step < pairs && !to_total) {
                wait_for_lanes();
                EACH_LIMB(i) {
                    EACH_COORDINATE(k) set_limb(QX + k, i, get_limb(PX + k, i));
                }
            }
            if (to_total == swapped) { // the total is in P unless the points are swapped
                wait_for_lanes();
                swap_points();
                wait_for_lanes();
                bool other = infinity;
                infinity = saved_infinity;
                saved_infinity = other;
                swapped = !swapped;
            }
            if (to_total) {
                other_infinity = load_elements(enabled, t * length + length - 1 - step / 2, QX);
            } else if (step >= doubled) {
                other_infinity = load_weighted_elements(enabled, t * length + step - doubled, QX);
            }
            add_points(enabled, doubles, infinity, other_infinity);
        }
        if (enabled) {
            if (swapped) store_weighted(t, infinity);
            else store_totals(t, infinity);
        }
        wait_for_lanes();
        swap_points();
        wait_for_lanes();
        if (enabled) {
            if (swapped) store_totals(t, saved_infinity);
            else store_weighted(t, saved_infinity);
        }
        wait_for_lanes();
    }
}
