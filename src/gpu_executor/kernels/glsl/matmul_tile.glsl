// A function NAME that computes one tile of ROWS x COLUMNS elements; included once for each kind of
// tile. An invocation computes BLOCKS x BLOCKS blocks of 4 x 4 elements: block (i, j) of the
// invocation at (x, y) is block (i * y_step + y, j * x_step + x) of the tile.
//
// The slice of k is processed in panels: DEPTH columns of a and DEPTH rows of b. While a panel is
// multiplied, the next one is loaded. `panels` holds the columns of a, each with a vector of
// padding, so that stores to adjacent columns go to different banks of the shared memory; then the
// rows of b.

#define A_PANEL(at, row) panels[(at) * (ROWS / 4 + 1) + (row) / 4]
#define B_PANEL(at, column) panels[DEPTH * (ROWS / 4 + 1) + (at) * (COLUMNS / 4) + (column) / 4]

void NAME(uint tile_row, uint tile_column) {
    const uint local = gl_LocalInvocationIndex;
    const uint x_step = COLUMNS / 4 / BLOCKS, y_step = ROWS / 4 / BLOCKS;
    const uint x = X_OF(local), y = Y_OF(local);
    // The vectors of the panels that the invocation loads: four columns of a row of a, and four
    // columns of a row of b.
    const uint a_row = local / (DEPTH / 4), a_at = local % (DEPTH / 4) * 4;
    const uint b_at = local / (COLUMNS / 4), b_column = local % (COLUMNS / 4) * 4;
    const bool loads_a = a_row < ROWS, loads_b = b_at < DEPTH;

    TYPE4 sums[4 * BLOCKS][BLOCKS];
    [[unroll]] for (uint i = 0; i < 4 * BLOCKS; ++i) {
        [[unroll]] for (uint j = 0; j < BLOCKS; ++j) sums[i][j] = TYPE4(0);
    }
    TYPE4 next_a, next_b;
    if (loads_a) next_a = load_a_vector(tile_row + a_row, first + a_at);
    if (loads_b) next_b = load_b_vector(first + b_at, tile_column + b_column);
    for (uint panel = first; panel < end; panel += DEPTH) {
        if (loads_a) {
            [[unroll]] for (uint i = 0; i < 4; ++i) {
                A_PANEL(a_at + i, a_row)[a_row % 4] = next_a[i];
            }
        }
        if (loads_b) B_PANEL(b_at, b_column) = next_b;
        barrier();
        if (loads_a) next_a = load_a_vector(tile_row + a_row, panel + DEPTH + a_at);
        if (loads_b) next_b = load_b_vector(panel + DEPTH + b_at, tile_column + b_column);
        [[unroll]] for (uint at = 0; at < DEPTH; ++at) {
            TYPE4 a_part[BLOCKS], b_part[BLOCKS];
            [[unroll]] for (uint i = 0; i < BLOCKS; ++i) {
                a_part[i] = A_PANEL(at, (i * y_step + y) * 4);
                b_part[i] = B_PANEL(at, (i * x_step + x) * 4);
            }
            [[unroll]] for (uint i = 0; i < 4 * BLOCKS; ++i) {
                [[unroll]] for (uint j = 0; j < BLOCKS; ++j) {
                    sums[i][j] += a_part[i / 4][i % 4] * b_part[j];
                }
            }
        }
        barrier();
    }

    // Every fourth row at a time goes through `panels`, so that adjacent invocations store adjacent
    // elements.
    [[unroll]] for (uint i = 0; i < 4 * BLOCKS; ++i) {
        [[unroll]] for (uint j = 0; j < BLOCKS; ++j) {
            panels[y * (COLUMNS / 4) + j * x_step + x] = sums[i][j];
        }
        barrier();
        for (uint at = local; at < y_step * COLUMNS; at += INVOCATIONS) {
            uint row = (i / 4 * y_step + at / COLUMNS) * 4 + i % 4;
            store(tile_row + row, tile_column + at % COLUMNS, panels[at / 4][at % 4]);
        }
        barrier();
    }
}

#undef A_PANEL
#undef B_PANEL
#undef NAME
#undef BLOCKS
#undef ROWS
#undef COLUMNS
#undef X_OF
#undef Y_OF
