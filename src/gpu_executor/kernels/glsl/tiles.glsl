// The tiles of a pass of a transform, and the order in which elements are loaded and stored.
//
// A pass treats a block of 2^log_m elements as A = 2^LEVELS rows of R elements and transforms its
// columns. A work-group processes a tile of C = 2^COLUMNS adjacent columns, so that its loads from a
// row are contiguous. If a row is one element (R = 1), a tile is C whole blocks.
//
// The including file declares the push constants count, log_m and log_n, and the constant GRID_STRIDE:
// whether there are fewer work-groups than tiles.

#include "spec_ids.glsl"

layout(constant_id = ID_LEVELS) const uint LEVELS = 7;
// The logarithm to base 2 of the number of columns of a tile.
layout(constant_id = ID_COLUMNS) const uint COLUMNS = 1;
// Whether to store in the bit-reversed order.
layout(constant_id = ID_REVERSES) const bool REVERSES = false;

const uint A = 1u << LEVELS, C = 1u << COLUMNS, TILE = A * C;

// The lowest `bits` bits of x in reverse order.
uint reverse_bits(uint x, uint bits) {
    return bits == 0 ? 0 : bitfieldReverse(x) >> (32 - bits);
}

// Where the q-th block of one-element rows begins. If REVERSES, adjacent blocks of a tile are those
// whose elements will be adjacent in the bit-reversed order.
uint block_start(uint q) {
    if (!REVERSES) return q << LEVELS;
    uint bits = log_n - LEVELS, own = q & ((1u << bits) - 1u);
    return (q - own + reverse_bits(own, bits)) << LEVELS;
}

// The position of an element: its row, its index in memory and its index in the tile.
struct Position { uint row; uint index; uint in_tile; };

Position make_position(uint tile, uint row, uint c) {
    uint log_r = log_m - LEVELS, in_tile = (row << COLUMNS) + c, column = (tile << COLUMNS) + c;
    if (log_r == 0) return Position(row, block_start(column) + row, in_tile);
    uint block = column >> log_r, r = column & ((1u << log_r) - 1u);
    return Position(row, (block << log_m) + (row << log_r) + r, in_tile);
}

// The i-th element to load: adjacent i are adjacent in memory.
Position load_position(uint tile, uint i) {
    if (log_m == LEVELS) return make_position(tile, i & (A - 1), i >> LEVELS);
    return make_position(tile, i >> COLUMNS, i & (C - 1));
}

// The i-th element to store: again, adjacent i are adjacent in memory. Reversing the order in the
// last pass costs less than a pass of its own.
Position store_position(uint tile, uint i) {
    if (!REVERSES) return load_position(tile, i);
    if (log_m == LEVELS && log_n > LEVELS) return make_position(tile, i >> COLUMNS, i & (C - 1));
    return make_position(tile, reverse_bits(i, LEVELS), i >> LEVELS);
}

// The index at which an element of the result is stored.
uint store_index(Position position) {
    if (!REVERSES) return position.index;
    return (position.index >> log_n << log_n) + reverse_bits(position.index, log_n);
}

// The tile of a work-group, and the next one if there are more tiles than work-groups. Without
// GRID_STRIDE there is no loop: 2^24 elements of Goldilocks took 0.511 ms instead of 0.527 ms on an NVIDIA
// H200, and 2^18 elements of BabyBear 70 ms instead of 189 ms on lavapipe.
#define FIRST_TILE gl_WorkGroupID.x
bool find_next_tile(inout uint tile) {
    if (!GRID_STRIDE) return false;
    barrier(); // nobody reads the shared memory of this tile any more
    tile += gl_NumWorkGroups.x;
    return tile < count >> (LEVELS + COLUMNS);
}

#define EACH_LOCAL(i, size) \
    for (uint i = gl_LocalInvocationID.x; i < (size); i += gl_WorkGroupSize.x)
