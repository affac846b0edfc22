// A pass of decimation in time: bit-reversed order in, natural order out; small distances first.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../transform.glsl"

#ifndef IN_ROUNDS
void main() {
    lazy_begin();
    load_roots();
    uint tile = FIRST_TILE;
    do {
        EACH_LOCAL(i, TILE) {
            Position position = load_position(tile, i);
            ELEMENT words;
            LAZY x;
            load_source(position.index, words);
            lazy_from_element(words, x);
            if (TWIDDLES) multiply_by_twiddle(x, twiddle_exponent(position));
            put_tile(position.in_tile, x);
        }
        barrier();
        for (uint log_distance = 0; log_distance < LEVELS; ++log_distance) {
            EACH_LOCAL(i, TILE / 2) {
                Butterfly at = make_butterfly(i, log_distance);
                LAZY u, v, sum, difference;
                get_tile(at.first, u);
                get_tile(at.second, v);
                if (log_distance > 0) { // otherwise all roots are 1
                    LAZY root, product;
                    get_roots(at.root, root);
                    lazy_mul(v, root, product);
                    lazy_copy(product, v);
                }
                lazy_add(u, v, sum);
                lazy_sub(u, v, difference);
                put_tile(at.first, sum);
                put_tile(at.second, difference);
            }
            barrier();
        }
        EACH_LOCAL(i, TILE) {
            Position position = store_position(tile, i);
            ELEMENT words;
            LAZY x;
            get_tile(position.in_tile, x);
            lazy_to_element(x, words);
            store_y(store_index(position), words);
        }
    } while (find_next_tile(tile));
}
#else
#include "../transform_rounds.glsl"

void main() {
    load_roots();
    uint i = gl_LocalInvocationID.x, log_r = log_m - LEVELS, tile = FIRST_TILE;
    do {
        LAZY x[8];
        uint start = column_start(tile, get_column(i)), row = first_row(i, LAST);
        if (!BY_BLOCK) {
#define LOAD(j) load_element(start + ((row + j) << log_r), x[j]);
            EACH_HELD(LOAD)
            wait_for_roots();
        } else {
            // Adjacent invocations load adjacent elements.
#define LOAD_IN_BLOCK(j)                                                                        \
            {                                                                                   \
                uint k = j * (TILE / HELD) + i, c = k >> LEVELS;                                \
                LAZY loaded;                                                                    \
                load_element(column_start(tile, c) + (k & (A - 1)), loaded);                    \
                put_tile(place(k & (A - 1), c), loaded);                                        \
            }
            EACH_HELD(LOAD_IN_BLOCK)
            barrier();
            get_held(i, LAST, x);
        }
        if (TWIDDLES) multiply_by_twiddles(start, row, x);
        [[unroll]] for (uint k = 0; k < ROUNDS; ++k) {
            uint round = LAST - k;
            if (k > 0) {
                put_held(i, round + 1, x);
                barrier();
                get_held(i, round, x);
            }
            run_round(i, round, true, x);
        }
        row = first_row(i, 0);
        if (!REVERSES) {
#define STORE(j) store_element(start + (row << log_r) + (j << (log_stride(0) + log_r)), x[j]);
            EACH_HELD(STORE)
        } else {
            put_held(i, 0, x);
            barrier();
            EACH_LOCAL(k, TILE) {
                Position position = store_position(tile, k);
                LAZY stored;
                get_tile(place_at(position), stored);
                store_element(store_index(position), stored);
            }
        }
    } while (find_next_tile(tile));
}
#endif
