// A pass from bit-reversed to natural order: u, v = u + v, (u - v) r, small distances first.
//
// Sums are reduced on every second level. They are below 44p before.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "block_pass.glsl"

void main() {
    uint column = get_column(), pair = get_pair(), tile = FIRST_TILE;
    do {
        uint start = column_start(tile, column);
        NUMBER u, v;
        load_pair(start, pair, 0, u, v);
        [[unroll]] for (uint d = 0; d < LEVELS; ++d) {
            FACTOR factor;
            load_root(start, pair, d, factor);
            add_sub(u, v);
            mul_factor(factor, v);
            if (d % 2 == 1) reduce_weakly(u);
            else carry_up(u);
            if (d + 1 < LEVELS) exchange(pair, column, d, d + 1, u, v);
        }
        if (SCALES) multiply_by_scale(u, v);
        store_pair(tile, start, pair, LEVELS - 1, log_m == log_n, u, v);
    } while (find_next_tile(tile));
}
