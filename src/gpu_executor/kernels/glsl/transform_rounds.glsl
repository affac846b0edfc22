// Passes of families of primes below 2^31: each invocation holds HELD elements of a column and computes
// LOG_HELD levels of butterflies in registers, a round. Between two rounds elements are exchanged
// through shared memory. 2^22 elements of BabyBear took 0.074 ms on an NVIDIA H200, and 0.169 ms with
// an exchange for each level; 0.081 ms with 16 elements in an invocation instead of 8.
//
// Elements of Goldilocks gain nothing from this: 0.32 ms instead of 0.27 ms, with 46 KB of code
// instead of 6.
//
// In a round of stride 2^s an invocation holds the rows first + j 2^s for j < HELD, so its butterflies
// have the distances 2^s to HELD 2^s / 2. The bits of `first` and of j 2^s are disjoint. So every index
// is a sum of one that depends on the invocation and of a constant for j, for which compilers need no
// instruction.
//
// Include transform.glsl first. A work-group has TILE / HELD invocations.

// Whether a row is one element (R = 1): log_m = LEVELS.
layout(constant_id = ID_BY_BLOCK) const bool BY_BLOCK = false;

const uint LOG_HELD = LEVELS < 3 ? LEVELS : 3, HELD = 1u << LOG_HELD; // as count_held in passes.py
const uint ROUNDS = LEVELS == 0 ? 1 : (LEVELS + LOG_HELD - 1) / LOG_HELD;

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

void put_held(uint i, uint round, LAZY x[HELD]) {
    uint at = place(first_row(i, round), get_column(i)), s = log_stride(round);
    [[unroll]] for (uint j = 0; j < HELD; ++j) put_tile(at + place_row(j << s), x[j]);
}

void get_held(uint i, uint round, out LAZY x[HELD]) {
    uint at = place(first_row(i, round), get_column(i)), s = log_stride(round);
    [[unroll]] for (uint j = 0; j < HELD; ++j) get_tile(at + place_row(j << s), x[j]);
}

// --- butterflies ---

// The butterflies of a round, large distances first; with `rises`, small distances first, and with
// the product before the sum.
void run_round(uint i, uint round, bool rises, inout LAZY x[HELD]) {
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

// --- elements in memory ---

// The index of a row's element in a column of a tile, for row 0; rows are 2^log_r elements apart.
uint column_start(uint tile, uint c) {
    uint column = (tile << COLUMNS) + c, log_r = log_m - LEVELS;
    if (BY_BLOCK) return block_start(column);
    return ((column >> log_r) << log_m) + (column & ((1u << log_r) - 1u));
}

void load_element(uint index, out LAZY x) {
    ELEMENT words;
    load_x(index, words);
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
