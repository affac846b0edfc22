// A pass of decimation in frequency: natural order in, bit-reversed order out; large distances
// first.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../../transform_rounds.glsl"

void main() {
    load_roots();
    uint i = gl_LocalInvocationID.x, log_r = log_m - LEVELS, tile = FIRST_TILE;
    do {
        LAZY x[8];
        uint start = column_start(tile, get_column(i)), row = first_row(i, 0);
        load_first_round(start, row, log_r, x);
        wait_for_roots();
        [[unroll]] for (uint round = 0; round < ROUNDS; ++round) {
            if (round > 0) exchange(i, round - 1, round, x);
            run_round(i, round, DIF, x);
        }
        row = first_row(i, LAST);
        if (TWIDDLES) multiply_by_twiddles(start, row, x);
        if (!BY_BLOCK) {
            store_last_round(start, row, log_r, x);
        } else {
            put_registers(i, LAST, x);
            barrier();
            if (REVERSES) store_reversed(tile);
            else store_blocks(tile, i);
        }
    } while (find_next_tile(tile));
}
