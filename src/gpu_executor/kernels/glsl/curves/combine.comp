// Adds partial sums of buckets. `keys` has the bucket of each partial sum, or NO_KEY where there is
// no sum. Partial sums of one bucket are neighbours, apart from places without a sum.
//
// Group t adds the sums from t * length on, run by run. The sum of a run goes to its bucket if the
// keys beside it show that the run is complete, else it is a partial sum of the next level, at the
// places described in accumulate.comp. With one group every run is complete.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(2)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint sum_count; uint length; };
layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
LIMBS_IN(1, sums)
LIMBS_OUT(3, buckets)
layout(set = 0, binding = 4, std430) writeonly buffer PartialKeys { uint partial_keys[]; };
LIMBS_OUT(5, partials)

const uint NO_KEY = 0xFFFFFFFF;

void main() {
    begin();
    EACH_GROUP(t) {
        bool enabled = t < count;
        uint first = t * length, end = min(first + length, sum_count);
        uint before = enabled && first > 0 ? keys[first - 1] : NO_KEY;
        uint behind = enabled && end < sum_count ? keys[end] : NO_KEY;
        uint head = NO_KEY, tail = NO_KEY, key = NO_KEY;
        bool continued = false, first_run = true, infinity = true;
        for (uint j = 0; j <= length; ++j) {
            uint i = first + j;
            bool has_sum = enabled && j < length && i < end && keys[i] != NO_KEY;
            uint next = has_sum ? keys[i] : NO_KEY;
            bool ends = key != NO_KEY && (j == length || (has_sum && next != key));
            if (ends) {
                bool continues = j == length && end < sum_count
                              && (behind == NO_KEY || behind == key);
                if (continued) {
                    head = key;
                    store_partials(2 * t - 1, infinity);
                } else if (continues) {
                    tail = key;
                    store_partials(2 * t, infinity);
                } else {
                    store_buckets(key, infinity);
                }
            }
            if (has_sum && next != key) {
                continued = first_run && first > 0 && (before == NO_KEY || before == next);
                first_run = false;
                key = next;
                infinity = true;
            }
            bool other_infinity = load_sums(has_sum, i, QX);
            add_points(has_sum, false, infinity, other_infinity);
        }
        if (enabled && lane() == 0) {
            if (t > 0) partial_keys[2 * t - 1] = head;
            partial_keys[2 * t] = tail;
        }
    }
}
