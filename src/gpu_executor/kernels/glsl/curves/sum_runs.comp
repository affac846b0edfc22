// Adds partial sums of buckets that are in short runs, of up to LONGEST places: at random scalars all
// of them. The inputs are those of combine.comp. Group t adds the runs that begin in its block, the
// `length` places from t * length on, and stores each sum in its bucket. `long_keys` are the keys
// without short runs, for combine.comp. So most calls need no level of partial sums, each of which takes
// several additions one after the other.
//
// With a block of one place five of six groups had nothing to add where runs have six places.
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
layout(set = 0, binding = 4, std430) writeonly buffer LongKeys { uint long_keys[]; };

const uint LONGEST = 8;

// Whether place i is in the run of a key; i may be beyond either end.
bool is_in_run(uint i, uint key) {
    return i < sum_count && keys[i] != NO_KEY && ((keys[i] ^ key) & ~EMPTY) == 0;
}

// The places of a run from place i on, at most one more than LONGEST.
uint count_places(uint i, uint key) {
    uint places = 1;
    while (places <= LONGEST && is_in_run(i + places, key)) ++places;
    return places;
}

bool is_in_short_run(uint i, uint key) {
    uint before = 0;
    while (before < LONGEST && is_in_run(i - before - 1, key)) ++before;
    return before + count_places(i, key) <= LONGEST;
}

// The place behind the last sum of the short run that begins at place i, or i if none does.
uint find_end(uint i) {
    uint key = keys[i];
    if (key == NO_KEY || is_in_run(i - 1, key)) return i;
    uint end = i + count_places(i, key);
    if (end - i > LONGEST) return i;
    while (end > i && (keys[end - 1] & EMPTY) != 0) --end;
    return end;
}

void main() {
    begin();
    EACH_GROUP(t) {
        OPERANDS
        uint i = t * length, block_end = t < count ? min(i + length, sum_count) : i, run_end = i;
        for (uint j = i + lane(); j < block_end; j += LANES) {
            uint key = keys[j];
            long_keys[j] = key == NO_KEY || is_in_short_run(j, key) ? NO_KEY : key;
        }
        bool infinity = true;
        while (true) {
            // On to the next sum of a run that begins in the block.
            while (i < run_end ? (keys[i] & EMPTY) != 0 : i < block_end) {
                if (i < run_end) {
                    ++i;
                } else {
                    infinity = true;
                    run_end = find_end(i);
                    if (run_end == i) run_end = ++i;
                }
            }
            bool enabled = i < run_end;
            if (!subgroupAny(enabled)) break;
            bool other_infinity = load_sums(PQ enabled, i, TO_Q);
            add_points(PQ enabled, false, infinity, other_infinity);
            if (enabled && ++i == run_end) store_buckets(PQ keys[i - 1] & ~EMPTY, infinity);
        }
    }
}
