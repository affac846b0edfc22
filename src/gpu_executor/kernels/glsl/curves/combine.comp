// Adds partial sums of buckets. `keys` has the bucket of each partial sum, with the bit EMPTY where a
// run goes on but has no sum, or NO_KEY where there is no run. Partial sums of one bucket are
// neighbours.
//
// Group t adds the sums from t * length on, run by run. The sum of a run goes to its bucket if the
// keys beside it show that the run is complete, else it is a partial sum of the next level, at the
// places described in accumulate.comp. Most runs cross the boundary of two elements of the level
// before, so their two sums are here in one group. With one group every run is complete. Groups without
// a key, which are most of them behind sum_runs.comp, do nothing else.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../bucket_keys.glsl"
#include "coordinate.glsl"
CONSTANTS(2)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; uint sum_count; uint length; };
layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
LIMBS_IN(1, sums)
LIMBS_OUT(3, buckets)
layout(set = 0, binding = 4, std430) writeonly buffer PartialKeys { uint partial_keys[]; };
LIMBS_OUT(5, partials)

// The bucket of a key, or NO_KEY.
uint get_bucket(uint key) { return key == NO_KEY ? NO_KEY : key & ~EMPTY; }

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        bool enabled = t < count;
        uint first = t * length, end = min(first + length, sum_count);
        uint before = enabled && first > 0 ? get_bucket(keys[first - 1]) : NO_KEY;
        uint behind = enabled && end < sum_count ? get_bucket(keys[end]) : NO_KEY;
        uint head = NO_KEY, tail = NO_KEY, key = NO_KEY;
        bool continued = false, infinity = true, has_keys = false;
        for (uint i = first + lane(); enabled && i < end; i += LANES) {
            has_keys = has_keys || keys[i] != NO_KEY;
        }
        uint steps = is_any(has_keys) ? length + 1 : 0;
        for (uint j = 0; j < steps; ++j) {
            uint i = first + j;
            uint found = enabled && j < length && i < end ? keys[i] : NO_KEY;
            uint next = get_bucket(found);
            bool has_sum = found != NO_KEY && (found & EMPTY) == 0;
            if (key != NO_KEY && (j == length || (next != NO_KEY && next != key))) {
                bool continues = j == length && behind == key;
                if (continued) {
                    head = key;
                    if (continues) tail = key | EMPTY;
                    store_partials(PQ 2 * t - 1, infinity);
                } else if (continues) {
                    tail = key;
                    store_partials(PQ 2 * t, infinity);
                } else {
                    store_buckets(PQ key, infinity);
                }
            }
            if (next != NO_KEY && next != key) {
                continued = key == NO_KEY && before == next;
                key = next;
                infinity = true;
            }
            bool other_infinity = load_sums(PQ has_sum, i, TO_Q);
            add_points(PQ has_sum, false, infinity, other_infinity);
        }
        if (enabled && lane() == 0) {
            if (t > 0) partial_keys[2 * t - 1] = head;
            partial_keys[2 * t] = tail;
        }
    }
}
