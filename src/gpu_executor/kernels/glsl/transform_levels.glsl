// Passes of families whose elements are several words: a tile is in shared memory, and invocations
// compute its butterflies level by level, one butterfly at a time.
//
// 2^20 elements of BLS12-381 Fr took 0.42 ms on an NVIDIA H200; with four elements and two levels in
// registers they took 0.47 ms, and that code takes three times as long to compile. So only elements that
// are one integer are kept in registers (transform_rounds.glsl).

#include "transform.glsl"

SHARED_LAZY(tile, TILE)
#include "transform_roots.glsl"

// --- twiddles ---

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

// --- the tile ---

// From memory to the tile, times the twiddles if `twiddles`.
void load_tile(uint tile, bool twiddles) {
    EACH_LOCAL(i, TILE) {
        Position position = load_position(tile, i);
        ELEMENT words;
        LAZY x;
        load_source(position.index, words);
        lazy_from_element(words, x);
        if (twiddles) multiply_by_twiddle(x, twiddle_exponent(position));
        put_tile(position.in_tile, x);
    }
}

// From the tile to memory, times the twiddles if `twiddles`.
void store_tile(uint tile, bool twiddles) {
    EACH_LOCAL(i, TILE) {
        Position position = store_position(tile, i);
        ELEMENT words;
        LAZY x;
        get_tile(position.in_tile, x);
        if (twiddles) multiply_by_twiddle(x, twiddle_exponent(position));
        lazy_to_element(x, words);
        store_y(store_index(position), words);
    }
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
