// One pass of a number-theoretic transform: LEVELS levels of butterflies in shared memory.
//
// A transform of 2^log_n elements is split as in Cooley and Tukey. A pass treats a block of M =
// 2^log_m elements as A = 2^LEVELS rows of R = M / A elements and transforms its columns, each with
// A / 2 * LEVELS butterflies. Element (k, r) is then multiplied by the twiddle w^(k r), where w is
// of order M. Each row is a block of the next pass. Rows come out in bit-reversed order, and so
// does the whole transform. That is decimation in frequency (dif_pass.comp); decimation in time
// (dit_pass.comp) is the same steps backwards.

#ifndef FAMILY_WIDE
#define IN_ROUNDS // transform_rounds.glsl
#endif

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
#ifndef IN_ROUNDS
SHARED_LAZY(tile, TILE)
#endif

// --- roots ---

#ifdef FAMILY_GOLDILOCKS
// The roots are read from memory (families/goldilocks_rounds.glsl).
void load_roots() {}
void wait_for_roots() {}
#else
const uint ROOTS = LEVELS == 0 ? 1 : A / 2;
SHARED_LAZY(roots, ROOTS)

// Copies the roots to shared memory. A barrier must follow before they are read.
void load_roots() {
    for (uint i = gl_LocalInvocationID.x; i < ROOTS; i += gl_WorkGroupSize.x) {
        ELEMENT words;
        LAZY root;
        load_root(i, words);
        lazy_from_element(words, root);
        put_roots(i, root);
    }
}
void wait_for_roots() { barrier(); }
#endif

// --- elements and twiddles ---

// The element at an index of the rows that the pass transforms.
void load_source(uint index, out ELEMENT words) {
    uint i = index & ((1u << log_n) - 1u);
    if (PADS && i >= own_length) f_zero(words);
    else load_x(PADS ? (index >> log_n) * own_length + i : index >> LOG_REPEATS, words);
}

// k r, where k is the row before bit reversal and r the column.
uint twiddle_exponent(Position position) {
    return reverse_bits(position.row, LEVELS) * (position.index & ((1u << (log_m - LEVELS)) - 1u));
}

// x *= w^e
void multiply_by_twiddle(inout LAZY x, uint e) {
    ELEMENT words;
    LAZY factor, product;
    load_low(e & ((1u << low_bits) - 1u), words);
    lazy_from_element(words, factor);
    if (!DIRECT) {
        LAZY other;
        load_high(e >> low_bits, words);
        lazy_from_element(words, other);
        lazy_mul(factor, other, factor);
    }
    lazy_mul(x, factor, product);
    lazy_copy(product, x);
}

// Butterfly i at a distance of 2^log_distance rows: the indices of its two elements in the tile,
// and the index of its root.
struct Butterfly { uint first; uint second; uint root; };

Butterfly make_butterfly(uint i, uint log_distance) {
    uint column = i & (C - 1), q = i >> COLUMNS, within = q & ((1u << log_distance) - 1u);
    uint row = ((q >> log_distance) << (log_distance + 1)) + within;
    uint first = (row << COLUMNS) + column;
    return Butterfly(first, first + (C << log_distance), within << (LEVELS - 1 - log_distance));
}
