// One round of affine additions (msm/stages.py): the sums of `pairs` of points, or the first point
// where the second is NONE. An index has the bit NEGATIVE where its point is subtracted. The pairs of
// the round are those between two of the `offsets`, and their sums begin at 0.
//
// A sum divides by x1 - x0, or by 2 y if both points are equal. An invocation multiplies the
// denominators of all its pairs and inverts their product (Montgomery's trick): 5M + 1S a sum and a share
// of the inverse, where a mixed addition to an XYZZ point takes 8M + 2S (point_group.glsl compares all
// forms of the group law). `products` has the product of the denominators before each pair.
//
// Products are those by rows: they are as fast here, and the driver of an NVIDIA H200 compiles them in 3.8
// instead of 7.1 s (BLS12-381).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../bucket_keys.glsl"
#include "coordinate.glsl"
CONSTANTS(2)
const uint LANES = 1;
#include "lanes.glsl"
#include "number_inverse.glsl"

layout(push_constant) uniform Push {
    uint count; uint offsets_at; uint runs; uint point_step; uint chunk_step; uint sum_step;
    uint sum_chunk_step;
};
layout(set = 0, binding = 0, std430) readonly restrict buffer Pairs { uvec2 pairs[]; };
UNITS_VIEWS(1, points, readonly)
layout(set = 0, binding = 3, std430) readonly restrict buffer Offsets { uint offsets[]; };
UNITS_VIEWS(4, sums, writeonly)
layout(set = 0, binding = 5, std430) restrict buffer Products { uint products[]; };

const uint NONE = 0xFFFFFFFF; // as in pair_runs.comp
const uint ADDS = 0, DOUBLES = 1, CANCELS = 2, TAKES_FIRST = 3, TAKES_SECOND = 4;

uint first_pair, pair_count;

uvec2 pair_at(uint step) {
    uint at = step * count + gl_GlobalInvocationID.x;
    return at < pair_count ? pairs[first_pair + at] : uvec2(NONE);
}

// Coordinates are loaded and stored in chunks of four words, or of one. Chunk k of point i is at
// i * point_step + k * chunk_step: the chunks of a point are neighbours, or those of all points with
// the same k. Between two rounds they are the latter, so that neighbouring invocations access
// neighbouring chunks.
const uint CHUNK = WORDS % 4 == 0 ? 4 : 1, CHUNKS = WORDS / CHUNK;

void load_words(uint index, uint coordinate, out uint words[WORDS]) {
    uint first = (index & ~NEGATIVE) * point_step + coordinate * CHUNKS * chunk_step;
    [[unroll]] for (uint k = 0; k < CHUNKS; ++k) {
        uint at = first + k * chunk_step;
        if (CHUNK == 4) {
            uvec4 v = points_by4[at];
            words[4 * k] = v.x; words[4 * k + 1] = v.y; words[4 * k + 2] = v.z; words[4 * k + 3] = v.w;
        } else {
            words[k] = points_by1[at];
        }
    }
}

// A coordinate as it is stored: below p.
void load_number(uint index, uint coordinate, out NUMBER x) {
    uint words[WORDS];
    load_words(index, coordinate, words);
    words_to_limbs(words, 0, x);
}

// y, or p - y where the point is subtracted: at most p.
void apply_sign(uint index, inout NUMBER y) {
    if ((index & NEGATIVE) != 0) n_negate(y, y);
}

bool is_equal(NUMBER x, NUMBER y) {
    uint different = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) different |= x[i] ^ y[i];
    return different == 0;
}

bool is_clear(NUMBER x) {
    uint any = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) any |= x[i];
    return any == 0;
}

// How the points of a pair are added. Only points with an x of 0 can be infinity.
uint find_kind(uvec2 pair, NUMBER x0, NUMBER x1) {
    bool equal = is_equal(x0, x1);
    if (!equal && !is_clear(x0) && !is_clear(x1)) return ADDS;
    NUMBER y0, y1;
    load_number(pair.x, 1, y0);
    load_number(pair.y, 1, y1);
    if (is_clear(x0) && is_clear(y0)) return TAKES_SECOND;
    if (is_clear(x1) && is_clear(y1)) return TAKES_FIRST;
    if (!equal) return ADDS;
    bool same_sign = ((pair.x ^ pair.y) & NEGATIVE) == 0;
    return is_equal(y0, y1) == same_sign && !is_clear(y0) ? DOUBLES : CANCELS;
}

// z = x mod p, for an x below 4p.
void n_reduce(NUMBER x, out NUMBER z) {
    NUMBER p, twice;
    multiple_of_modulus(2, twice);
    load_modulus_limbs(p);
    reduce_once(x, twice, z);
    reduce_once(z, p, z);
}

void store_number(uint index, uint coordinate, NUMBER x) {
    uint words[WORDS], first = index * sum_step + coordinate * CHUNKS * sum_chunk_step;
    limbs_to_words(x, words);
    [[unroll]] for (uint k = 0; k < CHUNKS; ++k) {
        uint at = first + k * sum_chunk_step;
        if (CHUNK == 4) {
            sums_by4[at] = uvec4(words[4 * k], words[4 * k + 1], words[4 * k + 2], words[4 * k + 3]);
        } else {
            sums_by1[at] = words[k];
        }
    }
}

// Multiplies `running` by the denominators of all pairs. Returns whether every pair is added by
// the formula for different points.
bool multiply_denominators(uint steps, inout NUMBER running) {
    NUMBER x0, x1, difference;
    bool all_add = true;
    uvec2 pair = pair_at(0), next = pair_at(1);
    uint words0[WORDS], words1[WORDS];
    if (pair.y != NONE) {
        load_words(pair.x, 0, words0);
        load_words(pair.y, 0, words1);
    }
    for (uint step = 0; step < steps; ++step) {
        // The words of the next pair are loaded before the product of this one.
        uvec2 behind = pair_at(step + 2);
        words_to_limbs(words0, 0, x0);
        words_to_limbs(words1, 0, x1);
        if (next.y != NONE) {
            load_words(next.x, 0, words0);
            load_words(next.y, 0, words1);
        }
        if (pair.y != NONE) {
            n_sub(x1, x0, 1, difference);   // 2p
            uint kind = find_kind(pair, x0, x1);
            all_add = all_add && kind == ADDS;
            if (kind == DOUBLES) {
                load_number(pair.x, 1, x0);
                apply_sign(pair.x, x0);
                n_mul_add(1, x0, x0, difference);
            }
            if (kind <= DOUBLES) {
                [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
                    products[(step * LIMBS + i) * count + gl_GlobalInvocationID.x] = running[i];
                }
                mul_limbs_by_rows(running, difference, running);
            }
        }
        pair = next;
        next = behind;
    }
    return all_add;
}

void main() {
    uint t = gl_GlobalInvocationID.x;
    first_pair = offsets[offsets_at];
    pair_count = offsets[offsets_at + runs] - first_pair;
    if (t >= count || t >= pair_count) return;
    uint steps = (pair_count - t - 1) / count + 1;
    NUMBER running, x0, y0, x1, y1, difference, slope, z;
    load_constant(ONE, running);
    bool all_add = multiply_denominators(steps, running);
    n_invert(running, running);
    for (uint step = steps; step-- > 0;) {
        uint sum = step * count + t, kind = TAKES_FIRST;
        uvec2 pair = pair_at(step);
        load_number(pair.x, 0, x0);
        load_number(pair.x, 1, y0);
        bool infinity = is_clear(x0) && is_clear(y0);
        apply_sign(pair.x, y0);
        if (pair.y != NONE) {
            load_number(pair.y, 0, x1);
            load_number(pair.y, 1, y1);
            apply_sign(pair.y, y1);
            kind = all_add ? ADDS : find_kind(pair, x0, x1);
        }
        if (kind > DOUBLES) {
            if (kind == TAKES_SECOND) {
                infinity = is_clear(x1) && n_is_zero(y1);
                n_copy(x1, x0);
                n_copy(y1, y0);
            }
            bool finite = !infinity && kind != CANCELS;
            n_mask(finite, x0, x1);
            n_mask(finite, y0, z);
        } else {
            n_sub(x1, x0, 1, difference);           // 2p
            n_sub(y1, y0, 1, slope);                // 2p
            if (kind == DOUBLES) {
                n_mul_add(1, y0, y0, difference);   // 2p
                mul_limbs_by_rows(x0, x0, y1);
                load_constant(COEFFICIENT_A, slope);
                n_mul_add(3, y1, slope, slope);     // 7p
            }
            [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
                z[i] = products[(step * LIMBS + i) * count + t];
            }
            mul_limbs_by_rows(running, z, z);       // 1 / difference
            mul_limbs_by_rows(running, difference, running);
            mul_limbs_by_rows(slope, z, slope);     // 14
            square_limbs(slope, z);
            n_sub(z, x0, 1, z);
            n_sub(z, x1, 1, z);                     // 4p
            n_reduce(z, x1);
            n_sub(x0, x1, 1, z);                    // 2p
            mul_limbs_by_rows(slope, z, z);
            n_sub(z, y0, 1, z);                     // 3p
        }
        n_reduce(z, z);
        store_number(sum, 0, x1);
        store_number(sum, 1, z);
    }
}
