// Passes of families whose elements are one integer: an invocation has RADIX elements of a column in
// registers, and computes LOG_RADIX levels of butterflies on them, a round. Between two rounds elements
// are exchanged through shared memory.
//
// 2^22 elements of BabyBear took 0.074 ms on an NVIDIA H200, and 0.169 ms with an exchange for each
// level; 2^22 elements of Goldilocks 0.153 ms and 0.267 ms. With 16 elements in an invocation instead of
// 8 they took 0.081 and 0.174 ms, with 4 elements of Goldilocks 0.160 ms.
//
// In a round of stride 2^s register x[j] has the row first + j 2^s, for j < RADIX, so the butterflies of
// an invocation have the distances 2^s to RADIX 2^s / 2. The bits of `first` and of j 2^s are disjoint.
// So every index is a sum of one that depends on the invocation and of a constant for j, for which
// compilers need no instruction.
//
// In an exchange an invocation puts its elements where it got the elements of the same round. Nobody else
// reads there before the barrier that follows, so no barrier precedes. It would take up to 1 % of the time
// of Goldilocks.
//
// A work-group has TILE / RADIX invocations.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "transform.glsl"

// Whether a row is one element (R = 1): log_m = LEVELS.
layout(constant_id = ID_BY_BLOCK) const bool BY_BLOCK = false;
// Whether the scale in `low` is not 1, unless DIRECT.
layout(constant_id = ID_SCALES) const bool SCALES = true;

const uint LOG_RADIX = LEVELS < 3 ? LEVELS : 3, RADIX = 1u << LOG_RADIX; // as get_log_radix in passes.py
const uint ROUNDS = LEVELS == 0 ? 1 : (LEVELS + LOG_RADIX - 1) / LOG_RADIX, LAST = ROUNDS - 1;

// DO(j) for each register x[j], j below RADIX. The indices of registers are literals: drivers keep arrays
// of 64-bit integers in memory if a loop indexes them.
#define EACH_REGISTER(DO)                                                                       \
    DO(0)                                                                                       \
    if (RADIX > 1) { DO(1) }                                                                    \
    if (RADIX > 2) { DO(2) DO(3) }                                                              \
    if (RADIX > 4) { DO(4) DO(5) DO(6) DO(7) }

// The rounds are numbered from the largest distances on.
uint log_stride(uint round) {
    return LEVELS > (round + 1) * LOG_RADIX ? LEVELS - (round + 1) * LOG_RADIX : 0;
}
uint count_levels(uint round) { return min(LEVELS - round * LOG_RADIX, LOG_RADIX); }

// What an invocation has of a tile. If a row is one element (BY_BLOCK), adjacent invocations have
// adjacent rows of a block, else adjacent columns.
uint get_column(uint i) { return BY_BLOCK ? i >> (LEVELS - LOG_RADIX) : i & (C - 1); }

uint first_row(uint i, uint round) {
    uint u = BY_BLOCK ? i & ((A >> LOG_RADIX) - 1) : i >> COLUMNS, s = log_stride(round);
    return ((u >> s) << (s + LOG_RADIX)) + (u & ((1u << s) - 1u));
}

// --- butterflies ---

// The families define these functions:
//
//     load_roots()                          copies the roots of the pass to shared memory
//     wait_for_roots()                      a barrier behind load_roots
//     run_round(i, round, DIF or DIT, x)    the butterflies of a round, on the registers of invocation i
//     mul_by_factor(x, y, z)                x * y, where y is an encoded factor (lazy.glsl)
const bool DIF = false, DIT = true;

#ifdef FAMILY_GOLDILOCKS
#include "families/goldilocks_rounds.glsl"
#else
#include "families/words31_rounds.glsl"
#endif

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

void put_registers(uint i, uint round, LAZY x[8]) {
    uint at = place(first_row(i, round), get_column(i)), s = log_stride(round);
#define PUT(j) put_tile(at + place_row(j << s), x[j]);
    EACH_REGISTER(PUT)
#undef PUT
}

void get_registers(uint i, uint round, out LAZY x[8]) {
    uint at = place(first_row(i, round), get_column(i)), s = log_stride(round);
#define GET(j) get_tile(at + place_row(j << s), x[j]);
    EACH_REGISTER(GET)
#undef GET
}

// From the rows of one round to those of another.
void exchange(uint i, uint from, uint to, inout LAZY x[8]) {
    put_registers(i, from, x);
    barrier();
    get_registers(i, to, x);
}

// --- twiddles ---

// w^e, from two tables.
void load_power(uint e, out LAZY power) {
    LAZY factor;
    load_low(e & ((1u << low_bits) - 1u), power);
    load_high(e >> low_bits, factor);
    mul_by_factor(power, factor, power);
}

// Multiplies the elements that an invocation has in the last round, whose first row is `row` of the
// column that begins at `start`, by their twiddles. DIRECT: `low` has the twiddles of all columns of a
// row, one row after the other, so that adjacent invocations read adjacent twiddles: 2^22 elements of
// BabyBear took 0.044 ms instead of 0.049 ms with one column after the other (NVIDIA H200). Otherwise the
// scale follows the powers in `low`, and the twiddles of an invocation are computed: a geometric sequence,
// in bit-reversed order. The even and the odd ones are computed by turns, so that products do not wait for
// each other.
void multiply_by_twiddles(uint start, uint row, inout LAZY x[8]) {
    uint log_r = log_m - LEVELS, r = start & ((1u << log_r) - 1u);
    if (DIRECT) {
        uint at = BY_BLOCK ? 0 : (row << log_r) + r;
#define MULTIPLY(j)                                                                             \
        {                                                                                       \
            LAZY factor;                                                                        \
            load_low(BY_BLOCK ? 0 : at + (j << log_r), factor);                                 \
            mul_by_factor(x[j], factor, x[j]);                                                  \
        }
        EACH_REGISTER(MULTIPLY)
#undef MULTIPLY
    } else {
        LAZY even, odd, step;
        load_power(BY_BLOCK ? 0 : reverse_bits(row, LEVELS) * r, even);
        load_power(BY_BLOCK ? 0 : r << (LEVELS - LOG_RADIX), step);
        if (SCALES) {
            LAZY scale;
            load_low(1u << low_bits, scale);
            mul_by_factor(even, scale, even);
        }
        mul_by_factor(even, step, odd);
        mul_by_factor(step, step, step);
#define MULTIPLY(j)                                                                             \
        {                                                                                       \
            uint first = reverse_bits(2 * j, LOG_RADIX);                                        \
            if (j > 0) mul_by_factor(even, step, even);                                         \
            mul_by_factor(x[first], even, x[first]);                                            \
            if (j > 0) mul_by_factor(odd, step, odd);                                           \
            if (RADIX > 1) mul_by_factor(x[first + RADIX / 2], odd, x[first + RADIX / 2]);      \
        }
        MULTIPLY(0)
        if (RADIX > 2) { MULTIPLY(1) }
        if (RADIX > 4) { MULTIPLY(2) MULTIPLY(3) }
#undef MULTIPLY
    }
}

// --- elements in memory ---

// The index of row 0 of column c of a tile; rows are 2^log_r elements apart.
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

// The rows of an invocation in the first round, and in the last one, where they are adjacent: the index
// of the element of register j. `start` is the column_start of its column, `row` its first_row in that
// round; rows are 2^log_r elements apart. Registers from RADIX on keep what they have.
#define FIRST_ROUND_INDEX(j) (start + (row << log_r) + (j << (log_stride(0) + log_r)))
#define LAST_ROUND_INDEX(j) (start + ((row + j) << log_r))

void load_first_round(uint start, uint row, uint log_r, inout LAZY x[8]) {
#define LOAD(j) load_element(FIRST_ROUND_INDEX(j), x[j]);
    EACH_REGISTER(LOAD)
#undef LOAD
}

void load_last_round(uint start, uint row, uint log_r, inout LAZY x[8]) {
#define LOAD(j) load_element(LAST_ROUND_INDEX(j), x[j]);
    EACH_REGISTER(LOAD)
#undef LOAD
}

void store_first_round(uint start, uint row, uint log_r, LAZY x[8]) {
#define STORE(j) store_element(FIRST_ROUND_INDEX(j), x[j]);
    EACH_REGISTER(STORE)
#undef STORE
}

void store_last_round(uint start, uint row, uint log_r, LAZY x[8]) {
#define STORE(j) store_element(LAST_ROUND_INDEX(j), x[j]);
    EACH_REGISTER(STORE)
#undef STORE
}

// If a row is one element, a tile is whole blocks: from memory to shared memory, and back. Adjacent
// invocations access adjacent elements.
void load_blocks(uint tile, uint i) {
#define LOAD(j)                                                                                 \
    {                                                                                           \
        uint k = j * (TILE / RADIX) + i, c = k >> LEVELS;                                       \
        LAZY loaded;                                                                            \
        load_element(column_start(tile, c) + (k & (A - 1)), loaded);                            \
        put_tile(place(k & (A - 1), c), loaded);                                                \
    }
    EACH_REGISTER(LOAD)
#undef LOAD
}

void store_blocks(uint tile, uint i) {
#define STORE(j)                                                                                \
    {                                                                                           \
        uint k = j * (TILE / RADIX) + i;                                                        \
        LAZY stored;                                                                            \
        get_tile(place(k & (A - 1), k >> LEVELS), stored);                                      \
        store_element((tile << (LEVELS + COLUMNS)) + k, stored);                                \
    }
    EACH_REGISTER(STORE)
#undef STORE
}

// From shared memory to the bit-reversed order in memory.
void store_reversed(uint tile) {
    EACH_LOCAL(k, TILE) {
        Position position = store_position(tile, k);
        LAZY stored;
        get_tile(place(position.in_tile >> COLUMNS, position.in_tile & (C - 1)), stored);
        store_element(store_index(position), stored);
    }
}
