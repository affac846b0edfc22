// Rounds of butterflies of elements of one word. The roots are in shared memory.
//
// transform_rounds.glsl includes this file.

#include "../transform_roots.glsl"
void wait_for_roots() { barrier(); }

// The butterflies of a round. DIF: large distances first; u, v become u + v and (u - v) w. DIT: small
// distances first; u, v become u + v w and u - v w.
void run_round(uint i, uint round, bool in_time, inout LAZY x[8]) {
    uint s = log_stride(round), base = first_row(i, round) & ((1u << s) - 1u);
    [[unroll]] for (uint k = 0; k < LOG_RADIX; ++k) {
        uint level = in_time ? k : LOG_RADIX - 1 - k;
        if (level < count_levels(round)) {
            bool multiplies = s + level > 0; // otherwise all roots are 1
            LAZY root;
            [[unroll]] for (uint j = 0; j < RADIX / 2; ++j) {
                // Butterflies of equal roots follow each other.
                uint log_same = LOG_RADIX - 1 - level, within = j >> log_same;
                uint block = j & ((1u << log_same) - 1u);
                uint first = (block << (level + 1)) + within, second = first + (1u << level);
                if (block == 0 && multiplies) {
                    uint shift = LEVELS - 1 - level;
                    get_roots((base << (shift - s)) + (within << shift), root);
                }
                LAZY u = x[first], v = x[second];
                if (in_time && multiplies) lazy_mul(v, root, v);
                lazy_add(u, v, x[first]);
                if (in_time || !multiplies) lazy_sub(u, v, x[second]);
                else lazy_sub_mul(u, v, root, x[second]);
            }
        }
    }
}
