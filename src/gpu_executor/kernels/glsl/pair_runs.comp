// The pairs of neighbours that rounds of affine additions add (curves/add_pairs.comp). The entries are
// sorted by `keys`: neighbours with equal keys are a run, which each round makes half as long. `starts`
// has the position of the first entry of each run, `ends` that behind its last.
//
// The sums of round r are at the `offsets` of its runs, behind those of the round before, as are their
// `pairs`: the indices of two terms, or of one and NONE for a last term without a neighbour. The terms
// of the first round are `entries`, those of round r the sums of the round before, counted from the
// first of that round. `last_keys` has the keys of the sums of the last round.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "bucket_keys.glsl"

layout(push_constant) uniform Push { uint count; uint runs; uint rounds; };
layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 1, std430) readonly buffer Entries { uint entries[]; };
layout(set = 0, binding = 2, std430) readonly buffer Starts { uint starts[]; };
layout(set = 0, binding = 3, std430) readonly buffer Ends { uint ends[]; };
layout(set = 0, binding = 4, std430) readonly buffer Offsets { uint offsets[]; };
layout(set = 0, binding = 5, std430) writeonly buffer Pairs { uvec2 pairs[]; };
layout(set = 0, binding = 6, std430) writeonly buffer LastKeys { uint last_keys[]; };

const uint NONE = 0xFFFFFFFF; // as in add_pairs.comp

ELEMENTWISE(i) {
    uint key = keys[i];
    if (key != NO_KEY) {
        uint at = i - starts[key], length = ends[key] - starts[key];
        uvec2 pair = uvec2(entries[i], at + 1 < length ? entries[i + 1] : NONE);
        for (uint r = 0; r < rounds && (at & 1) == 0; ++r) {
            uint slot = offsets[r * runs + key] + at / 2;
            pairs[slot] = pair;
            at /= 2;
            length = (length + 1) / 2;
            uint sum = slot - offsets[r * runs];
            if (r + 1 == rounds) last_keys[sum] = key;
            pair = uvec2(sum, at + 1 < length ? sum + 1 : NONE);
        }
    }
}
