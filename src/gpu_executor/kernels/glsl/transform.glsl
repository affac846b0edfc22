// One pass of a number-theoretic transform: LEVELS levels of butterflies in shared memory.
//
// A pass cuts a part of M = 2^log_m elements into A = 2^LEVELS rows of R = M / A, and transforms the
// columns. With w of order M, row k of the outcome, column r, is then to be multiplied by w^(k r), and
// each row is a part for the pass behind it. Rows come out bit-reversed, as everything does in the end.
// A pass that gathers does all that backwards.
//
// A work-group takes a tile of C = 2^COLUMNS columns side by side, so that what it reads of a row lies
// in one piece. With rows of one element it takes C whole parts, which lie one behind the other.

#define PRODUCTS
#define KERNEL_PUSH uint log_m; uint low_bits; uint log_n;
#include "element.glsl"
#include "work.glsl"

layout(constant_id = 60) const uint LEVELS = 7;
layout(constant_id = 61) const uint COLUMNS = 1;
layout(constant_id = 62) const bool TWISTS = true;  // whether there is a w^(k r) to multiply by
layout(constant_id = 63) const bool DIRECT = false; // whether `low` has all of them
layout(constant_id = 64) const bool REVERSES = false; // whether the outcome is put in the other order

const uint A = 1u << LEVELS, C = 1u << COLUMNS, TILE = A * C;
const uint ROOTS = LEVELS == 0 ? 1 : A / 2;

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, root) // w_A^j for j < A / 2, where w_A is of order A
ELEMENTS_IN(2, low)  // w^e = low[e mod 2^low_bits] * high[e >> low_bits]
ELEMENTS_IN(3, high)
ELEMENTS_OUT(4, y)
SHARED_WORK(tile, TILE)
SHARED_WORK(roots, ROOTS)

void load_roots() {
    for (uint i = gl_LocalInvocationID.x; i < A / 2; i += gl_WorkGroupSize.x) {
        ELEMENT words;
        WORK root;
        load_root(i, words);
        w_from(words, root);
        put_roots(i, root);
    }
}

// The lowest bits of x, so many, the other way round.
uint reversed(uint x, uint bits) {
    return bits == 0 ? 0 : bitfieldReverse(x) >> (32 - bits);
}

// Where part q of those that tiles take begins. Where the order is reversed, neighbours in a tile are
// parts whose elements come to lie side by side.
uint part_at(uint q) {
    if (!REVERSES) return q << LEVELS;
    uint bits = log_n - LEVELS, own = q & ((1u << bits) - 1u);
    return (q - own + reversed(own, bits)) << LEVELS;
}

// Where element i of a tile is: its row, its place in memory and in the tile.
struct Spot { uint row; uint at; uint in_tile; };

Spot spot_in(uint tile, uint row, uint c) {
    uint log_r = log_m - LEVELS, in_tile = (row << COLUMNS) + c, column = (tile << COLUMNS) + c;
    if (log_r == 0) return Spot(row, part_at(column) + row, in_tile);
    uint part = column >> log_r, r = column & ((1u << log_r) - 1u);
    return Spot(row, (part << log_m) + (row << log_r) + r, in_tile);
}

// Element i in the order that they are read in: as they lie in memory.
Spot spot(uint tile, uint i) {
    if (log_m == LEVELS) return spot_in(tile, i & (A - 1), i >> LEVELS);
    return spot_in(tile, i >> COLUMNS, i & (C - 1));
}

// In the order that they are written in, which is again as they will lie in memory. To reverse them in
// the last pass costs less than another pass for it.
Spot spot_of_outcome(uint tile, uint i) {
    if (!REVERSES) return spot(tile, i);
    if (log_m == LEVELS && log_n > LEVELS) return spot_in(tile, i >> COLUMNS, i & (C - 1));
    return spot_in(tile, reversed(i, LEVELS), i >> LEVELS);
}

// Where an element of the outcome goes.
uint place(Spot spot) {
    if (!REVERSES) return spot.at;
    return (spot.at >> log_n << log_n) + reversed(spot.at, log_n);
}

// Times w^(k r), k the row's number before bit reversal.
void twist(inout WORK x, Spot spot) {
    uint e = reversed(spot.row, LEVELS) * (spot.at & ((1u << (log_m - LEVELS)) - 1u));
    ELEMENT words;
    WORK factor, twisted;
    load_low(e & ((1u << low_bits) - 1u), words);
    w_from(words, factor);
    if (!DIRECT) {
        WORK other;
        load_high(e >> low_bits, words);
        w_from(words, other);
        w_mul(factor, other, factor);
    }
    w_mul(x, factor, twisted);
    w_copy(twisted, x);
}

// Where the two elements of butterfly i lie in a tile, at a distance of 2^log_distance rows, and
// which root belongs to them.
struct Pair { uint first; uint second; uint root; };

Pair pair(uint i, uint log_distance) {
    uint column = i & (C - 1), q = i >> COLUMNS, within = q & ((1u << log_distance) - 1u);
    uint row = ((q >> log_distance) << (log_distance + 1)) + within;
    uint first = (row << COLUMNS) + column;
    return Pair(first, first + (C << log_distance), within << (LEVELS - 1 - log_distance));
}

#define EACH_TILE(tile) \
    for (uint tile = gl_WorkGroupID.x; tile < count >> (LEVELS + COLUMNS); tile += gl_NumWorkGroups.x)
#define EACH_OWN(i, size) \
    for (uint i = gl_LocalInvocationID.x; i < (size); i += gl_WorkGroupSize.x)
