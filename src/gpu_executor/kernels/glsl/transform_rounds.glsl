// Passes of families whose elements are one integer: each invocation holds HELD elements of a column and
// computes LOG_HELD levels of butterflies in registers, a round. Between two rounds elements are
// exchanged through shared memory. 2^22 elements of BabyBear took 0.074 ms on an NVIDIA H200, and
// 0.169 ms with an exchange for each level; 2^22 elements of Goldilocks 0.153 ms and 0.267 ms. With 16
// elements in an invocation instead of 8 they took 0.081 and 0.174 ms, with 4 elements of Goldilocks
// 0.160 ms.
//
// In a round of stride 2^s an invocation holds the rows first + j 2^s for j < HELD, so its butterflies
// have the distances 2^s to HELD 2^s / 2. The bits of `first` and of j 2^s are disjoint. So every index
// is a sum of one that depends on the invocation and of a constant for j, for which compilers need no
// instruction.
//
// In an exchange an invocation puts its elements where it got the elements of the same round. Nobody else
// reads there before the barrier that follows, so no barrier precedes. It would take up to 1 % of the time
// of Goldilocks.
//
// Include transform.glsl first. A work-group has TILE / HELD invocations.

// Whether a row is one element (R = 1): log_m = LEVELS.
layout(constant_id = ID_BY_BLOCK) const bool BY_BLOCK = false;
// Whether the scale in `low` is not 1, unless DIRECT.
layout(constant_id = ID_SCALES) const bool SCALES = true;

const uint LOG_HELD = LEVELS < 3 ? LEVELS : 3, HELD = 1u << LOG_HELD; // as count_held in passes.py
const uint ROUNDS = LEVELS == 0 ? 1 : (LEVELS + LOG_HELD - 1) / LOG_HELD, LAST = ROUNDS - 1;

// Statements for each j below HELD. The indices of registers are literals: drivers keep arrays of 64-bit
// integers in memory if a loop indexes them.
#define EACH_HELD(DO)                                                                           \
    DO(0)                                                                                       \
    if (HELD > 1) { DO(1) }                                                                     \
    if (HELD > 2) { DO(2) DO(3) }                                                               \
    if (HELD > 4) { DO(4) DO(5) DO(6) DO(7) }

// The rounds are numbered from the largest distances on.
uint log_stride(uint round) {
    return LEVELS > (round + 1) * LOG_HELD ? LEVELS - (round + 1) * LOG_HELD : 0;
}
uint count_levels(uint round) { return min(LEVELS - round * LOG_HELD, LOG_HELD); }

// What an invocation has of a tile. If a row is one element (BY_BLOCK), adjacent invocations have
// adjacent rows of a block, else adjacent columns.
uint get_column(uint i) { return BY_BLOCK ? i >> (LEVELS - LOG_HELD) : i & (C - 1); }

uint first_row(uint i, uint round) {
    uint u = BY_BLOCK ? i & ((A >> LOG_HELD) - 1) : i >> COLUMNS, s = log_stride(round);
    return ((u >> s) << (s + LOG_HELD)) + (u & ((1u << s) - 1u));
}

// --- shared memory ---

// A gap behind every 16 rows, and one behind every block, makes adjacent invocations access different
// memory banks.
uint place_row(uint row) {
    uint padded = row + (row >> 4);
    return BY_BLOCK ? padded : padded << COLUMNS;
}
uint place(uint row, uint column) {
    return place_row(row) + (BY_BLOCK ? column * (A + (A >> 4) + 1) : column);
}
SHARED_LAZY(tile, TILE + (TILE >> 4) + C)

void put_held(uint i, uint round, LAZY x[8]) {
    uint at = place(first_row(i, round), get_column(i)), s = log_stride(round);
#define PUT(j) put_tile(at + place_row(j << s), x[j]);
    EACH_HELD(PUT)
#undef PUT
}

void get_held(uint i, uint round, out LAZY x[8]) {
    uint at = place(first_row(i, round), get_column(i)), s = log_stride(round);
#define GET(j) get_tile(at + place_row(j << s), x[j]);
    EACH_HELD(GET)
#undef GET
}

// --- butterflies ---

#ifdef FAMILY_GOLDILOCKS
#include "families/goldilocks_rounds.glsl"
#else
// The butterflies of a round, large distances first; with `rises`, small distances first, and with
// the product before the sum.
void run_round(uint i, uint round, bool rises, inout LAZY x[8]) {
    uint s = log_stride(round), base = first_row(i, round) & ((1u << s) - 1u);
    [[unroll]] for (uint k = 0; k < LOG_HELD; ++k) {
        uint level = rises ? k : LOG_HELD - 1 - k;
        if (level < count_levels(round)) {
            bool multiplies = s + level > 0; // otherwise all roots are 1
            LAZY root;
            [[unroll]] for (uint j = 0; j < HELD / 2; ++j) {
                // Butterflies of equal roots follow each other.
                uint log_same = LOG_HELD - 1 - level, within = j >> log_same;
                uint block = j & ((1u << log_same) - 1u);
                uint first = (block << (level + 1)) + within, second = first + (1u << level);
                if (block == 0 && multiplies) {
                    uint shift = LEVELS - 1 - level;
                    get_roots((base << (shift - s)) + (within << shift), root);
                }
                LAZY u = x[first], v = x[second];
                if (rises && multiplies) lazy_mul(v, root, v);
                lazy_add(u, v, x[first]);
                if (rises || !multiplies) lazy_sub(u, v, x[second]);
                else lazy_sub_mul(u, v, root, x[second]);
            }
        }
    }
}

#endif

// --- twiddles ---

// w^e, from two tables.
void load_power(uint e, out LAZY power) {
    LAZY factor;
    load_low(e & ((1u << low_bits) - 1u), power);
    load_high(e >> low_bits, factor);
    lazy_mul(power, factor, power);
}

// The products of the elements that an invocation holds after the last round, whose first row is `row`
// of the column that begins at `start`. DIRECT: `low` has the twiddles of all rows of a column, one
// column after the other. Otherwise the scale follows the powers in `low`, and the twiddles of an
// invocation are computed: a geometric sequence, in bit-reversed order. The even and the odd ones are
// computed by turns, so that products do not wait for each other.
void multiply_by_twiddles(uint start, uint row, inout LAZY x[8]) {
    uint r = start & ((1u << (log_m - LEVELS)) - 1u);
    if (DIRECT) {
        uint at = BY_BLOCK ? 0 : (r << LEVELS) + row;
#define MULTIPLY(j)                                                                             \
        {                                                                                       \
            LAZY factor;                                                                        \
            load_low(BY_BLOCK ? 0 : at + j, factor);                                            \
            lazy_mul(x[j], factor, x[j]);                                                       \
        }
        EACH_HELD(MULTIPLY)
#undef MULTIPLY
    } else {
        LAZY even, odd, step;
        load_power(BY_BLOCK ? 0 : reverse_bits(row, LEVELS) * r, even);
        load_power(BY_BLOCK ? 0 : r << (LEVELS - LOG_HELD), step);
        if (SCALES) {
            LAZY scale;
            load_low(1u << low_bits, scale);
            lazy_mul(even, scale, even);
        }
        lazy_mul(even, step, odd);
        lazy_mul(step, step, step);
#define MULTIPLY(j)                                                                             \
        {                                                                                       \
            uint first = reverse_bits(2 * j, LOG_HELD);                                         \
            if (j > 0) lazy_mul(even, step, even);                                              \
            lazy_mul(x[first], even, x[first]);                                                 \
            if (j > 0) lazy_mul(odd, step, odd);                                                \
            if (HELD > 1) lazy_mul(x[first + HELD / 2], odd, x[first + HELD / 2]);              \
        }
        MULTIPLY(0)
        if (HELD > 2) { MULTIPLY(1) }
        if (HELD > 4) { MULTIPLY(2) MULTIPLY(3) }
#undef MULTIPLY
    }
}

// --- elements in memory ---

// The index of a row's element in a column of a tile, for row 0; rows are 2^log_r elements apart.
uint column_start(uint tile, uint c) {
    uint column = (tile << COLUMNS) + c, log_r = log_m - LEVELS;
    if (BY_BLOCK) return block_start(column);
    return ((column >> log_r) << log_m) + (column & ((1u << log_r) - 1u));
}

void load_element(uint index, out LAZY x) {
    ELEMENT words;
    load_source(index, words);
    lazy_from_element(words, x);
}

void store_element(uint index, LAZY x) {
    ELEMENT words;
    lazy_to_element(x, words);
    store_y(index, words);
}

// The place of the element at a position.
uint place_at(Position position) {
    return place(position.in_tile >> COLUMNS, position.in_tile & (C - 1));
}
