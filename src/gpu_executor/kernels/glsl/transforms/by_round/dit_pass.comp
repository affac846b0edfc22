// A pass of decimation in time: bit-reversed order in, natural order out; small distances first.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../../transform_rounds.glsl"

void main() {
    load_roots();
    uint i = gl_LocalInvocationID.x, log_r = log_m - LEVELS, tile = FIRST_TILE;
    do {
        LAZY x[8];
        uint start = column_start(tile, get_column(i)), row = first_row(i, LAST);
        if (!BY_BLOCK) {
            load_last_round(start, row, log_r, x);
            wait_for_roots();
        } else {
            load_blocks(tile, i);
            barrier(); // the roots are there too
            get_registers(i, LAST, x);
        }
        if (TWIDDLES) multiply_by_twiddles(start, row, x);
        [[unroll]] for (uint k = 0; k < ROUNDS; ++k) {
            uint round = LAST - k;
            if (k > 0) exchange(i, round + 1, round, x);
            run_round(i, round, DIT, x);
        }
        row = first_row(i, 0);
        if (!REVERSES) {
            store_first_round(start, row, log_r, x);
        } else {
            put_registers(i, 0, x);
            barrier();
            store_reversed(tile);
        }
    } while (find_next_tile(tile));
}
