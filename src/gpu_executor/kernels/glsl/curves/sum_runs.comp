// Adds partial sums of buckets that are in short runs, of up to LONGEST places: at random scalars all
// of them. The inputs are those of combine.comp. The group of the first place of a run adds the run and
// stores the sum in its bucket. `long_keys` are the keys without short runs, for combine.comp. So most
// calls need no level of partial sums, each of which takes several additions one after the other.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(2)
#include "point_group.glsl"

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
LIMBS_IN(1, sums)
LIMBS_OUT(3, buckets)
layout(set = 0, binding = 4, std430) writeonly buffer LongKeys { uint long_keys[]; };

const uint NO_KEY = 0xFFFFFFFF, EMPTY = 0x80000000, LONGEST = 8;

// Whether place i is in the run of a bucket; i may be beyond either end.
bool is_in_run(uint i, uint bucket) {
    return i < count && keys[i] != NO_KEY && (keys[i] & ~EMPTY) == bucket;
}

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        uint key = t < count ? keys[t] : NO_KEY, bucket = key & ~EMPTY, before = 0, places = 0;
        if (key != NO_KEY) {
            while (before < LONGEST && is_in_run(t - before - 1, bucket)) ++before;
            while (places <= LONGEST && is_in_run(t + places, bucket)) ++places;
        }
        bool is_short = before + places <= LONGEST, adds = is_short && before == 0;
        if (t < count && lane() == 0) long_keys[t] = is_short ? NO_KEY : key;
        bool infinity = true;
        for (uint j = 0; j < LONGEST; ++j) {
            bool enabled = adds && j < places;
            enabled = enabled && (keys[t + j] & EMPTY) == 0;
            bool other_infinity = load_sums(PQ enabled, t + j, TO_Q);
            add_points(PQ enabled, false, infinity, other_infinity);
        }
        if (adds && places > 0) store_buckets(PQ bucket, infinity);
    }
}
