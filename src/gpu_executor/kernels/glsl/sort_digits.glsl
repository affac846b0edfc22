// The digits of keys, and the tiles that the keys are divided into: what the kernels of the radix
// sort share.
//
// A pass sorts by DIGIT_BITS bits from bit `shift` on. Keys are words as they are in memory;
// their order as unsigned integers, signed integers or floats is applied when a digit is computed.
//
// The keys are rows of `row_length`, each of which is sorted by itself. A row is divided into
// `row_tiles` tiles. Unsigned keys of row r are compared after r * row_base is subtracted from them, and
// differences above `most` as if they were `most`.

#include "spec_ids.glsl"

layout(constant_id = ID_KEYS) const uint KEYS = 16;  // per invocation
layout(constant_id = ID_DIGIT_BITS) const uint DIGIT_BITS = 8;
layout(constant_id = ID_ORDER) const uint ORDER = 0;

layout(push_constant) uniform Push {
    uint count; uint shift; uint row_length; uint row_tiles; uint row_base; uint most;
};

const uint UNSIGNED = 0, SIGNED = 1, FLOAT = 2;  // values of ORDER; Order in kernels/sorting.py
const uint RADIX = 1u << DIGIT_BITS;
const uint TILE = gl_WorkGroupSize.x * KEYS;

// NaN is behind every other float. Negative zero is equal to zero.
#define NOT_A_NUMBER 0xffffffffu
#include "ordered_floats.glsl"

// A tile: its row, its number in the row, the index of its first key, and its number of keys.
struct Tile { uint row; uint number; uint start; uint size; };

Tile find_tile(uint tile) {
    uint row = tile / row_tiles, number = tile % row_tiles, within = number * TILE;
    return Tile(row, number, row * row_length + within, min(row_length - within, TILE));
}

// The index of a tile's count of a digit in the histogram: those of a row and a digit are neighbours.
uint count_index(Tile tile, uint digit) {
    return (tile.row * RADIX + digit) * row_tiles + tile.number;
}

#define EACH_TILE(i)                                                                          \
    for (uint i = gl_WorkGroupID.x; i < count / row_length * row_tiles; i += gl_NumWorkGroups.x)

uint compute_digit(uint key, uint row) {
#ifdef PACKED
    return key >> shift & (RADIX - 1);
#endif
    if (ORDER == UNSIGNED) key = min(key - row * row_base, most);
    if (ORDER == SIGNED) key ^= 0x80000000u;
    if (ORDER == FLOAT) key = from_memory(key == 0x80000000u ? 0 : key);
    return key >> shift & (RADIX - 1);
}

// A key that no other key is behind.
uint last_key() {
    return ORDER == UNSIGNED ? 0xffffffffu : ORDER == SIGNED ? 0x7fffffffu : 0x7fc00000u;
}
