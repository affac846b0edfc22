// One pass of a number-theoretic transform: LEVELS levels of butterflies on the tile of a work-group.
//
// A transform of 2^log_n elements is split as in Cooley and Tukey. A pass treats a block of M =
// 2^log_m elements as A = 2^LEVELS rows of R = M / A elements and transforms its columns, each with
// A / 2 * LEVELS butterflies. Element (k, r) is then multiplied by the twiddle w^(k r), where w is
// of order M. Each row is a block of the next pass. Rows come out in bit-reversed order, and so
// does the whole transform. That is decimation in frequency (dif_pass.comp); decimation in time
// (dit_pass.comp) is the same steps backwards.
//
// There are two algorithms, for different families of primes:
//
//     transforms/by_level/    the tile is in shared memory, where invocations compute one butterfly at
//                             a time (transform_levels.glsl): elements of several words
//     transforms/by_round/    invocations have elements in registers, and compute up to three levels
//                             between two exchanges (transform_rounds.glsl): elements of one integer
//
// A third one, for primes of 250 to 255 bits, needs no twiddles: block_pass.glsl.

#define PRODUCTS
#define KERNEL_PUSH uint log_m; uint low_bits; uint log_n; uint own_length;
#include "element.glsl"
#include "lazy.glsl"
#include "tiles.glsl"

// Whether to multiply by twiddles, and whether `low` alone has all of them.
layout(constant_id = ID_TWIDDLES) const bool TWIDDLES = true;
layout(constant_id = ID_DIRECT) const bool DIRECT = false;
// Whether rows of x have only own_length elements, which zeros follow.
layout(constant_id = ID_PADS) const bool PADS = false;
// log2 of the adjacent elements that each element of x stands for.
layout(constant_id = ID_LOG_REPEATS) const uint LOG_REPEATS = 0;

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, root) // w_A^j for j < A / 2, where w_A is of order A; for j < A in Goldilocks
ELEMENTS_IN(2, low)  // w^e = low[e mod 2^low_bits] * high[e >> low_bits]; transform_rounds.glsl
                     // has its own order if DIRECT
ELEMENTS_IN(3, high)
ELEMENTS_OUT(4, y)

// The element at an index of the rows that the pass transforms.
void load_source(uint index, out ELEMENT words) {
    uint i = index & ((1u << log_n) - 1u);
    if (PADS && i >= own_length) f_zero(words);
    else load_x(PADS ? (index >> log_n) * own_length + i : index >> LOG_REPEATS, words);
}
