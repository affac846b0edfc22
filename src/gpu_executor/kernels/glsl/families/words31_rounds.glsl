// Rounds of butterflies of elements of one word. The roots are in shared memory.
//
// transform_rounds.glsl includes this file.

#include "../transform_roots.glsl"
void wait_for_roots() { barrier(); }

#ifdef FAMILY_MONTY31
// f_mul with products of 64-bit integers, of which a driver makes one instruction each, and with an x below
// 2p: the difference of the upper halves is between -p and p nonetheless. 2^22 elements of BabyBear took
// 0.0505 ms instead of 0.0553 ms on an NVIDIA H200, and without reducing differences 0.0491 ms.
void mul_by_factor(uint x, uint y, out uint z) {
    uint64_t product = uint64_t(x) * y;
    uint m = uint(product) * inverse;
    z = lift_negative(uint(product >> 32) - uint(uint64_t(m) * modulus >> 32));
}

// (x - y) * w. The difference is not reduced.
void mul_difference(uint x, uint y, uint w, out uint z) { mul_by_factor(x + (P - y), w, z); }
#else
void mul_by_factor(uint x, uint y, out uint z) { f_mul(x, y, z); }
void mul_difference(uint x, uint y, uint w, out uint z) { lazy_sub_mul(x, y, w, z); }
#endif

// The butterflies of a round. DIF: large distances first; u, v become u + v and (u - v) w. DIT: small
// distances first; u, v become u + v w and u - v w.
void run_round(uint i, uint round, bool in_time, inout LAZY x[8]) {
    uint s = log_stride(round), base = first_row(i, round) & ((1u << s) - 1u);
    [[unroll]] for (uint k = 0; k < LOG_RADIX; ++k) {
        uint level = in_time ? k : LOG_RADIX - 1 - k;
        if (level < count_levels(round)) {
            LAZY root;
            [[unroll]] for (uint j = 0; j < RADIX / 2; ++j) {
                // Butterflies of equal roots follow each other.
                uint log_same = LOG_RADIX - 1 - level, within = j >> log_same;
                uint block = j & ((1u << log_same) - 1u);
                uint first = (block << (level + 1)) + within, second = first + (1u << level);
                bool multiplies = s + within > 0; // otherwise the root is 1
                if (block == 0 && multiplies) {
                    uint shift = LEVELS - 1 - level;
                    get_roots((base << (shift - s)) + (within << shift), root);
                }
                LAZY u = x[first], v = x[second];
                if (in_time && multiplies) mul_by_factor(v, root, v);
                lazy_add(u, v, x[first]);
                if (in_time || !multiplies) lazy_sub(u, v, x[second]);
                else mul_difference(u, v, root, x[second]);
            }
        }
    }
}
