// A pass of decimation in frequency: natural order in, bit-reversed order out; large distances
// first.
//
// In families that are not IN_ROUNDS an invocation computes one butterfly at a time. 2^20 elements of
// BLS12-381 Fr took 0.42 ms on an NVIDIA H200; with four elements and two levels in registers they
// took 0.47 ms, and that code takes three times as long to compile.
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
            put_tile(position.in_tile, x);
        }
        barrier();
        for (uint level = 0; level < LEVELS; ++level) {
            uint log_distance = LEVELS - 1 - level;
            EACH_LOCAL(i, TILE / 2) {
                Butterfly at = make_butterfly(i, log_distance);
                LAZY u, v, sum, difference;
                get_tile(at.first, u);
                get_tile(at.second, v);
                lazy_add(u, v, sum);
                if (log_distance > 0) {
                    LAZY root;
                    get_roots(at.root, root);
                    lazy_sub_mul(u, v, root, difference);
                } else {
                    lazy_sub(u, v, difference); // all roots are 1
                }
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
            if (TWIDDLES) multiply_by_twiddle(x, twiddle_exponent(position));
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
        uint start = column_start(tile, get_column(i)), row = first_row(i, 0);
#define LOAD(j) load_element(start + (row << log_r) + (j << (log_stride(0) + log_r)), x[j]);
        EACH_HELD(LOAD)
        wait_for_roots();
        [[unroll]] for (uint round = 0; round < ROUNDS; ++round) {
            if (round > 0) {
                put_held(i, round - 1, x);
                barrier();
                get_held(i, round, x);
            }
            run_round(i, round, false, x);
        }
        row = first_row(i, LAST);
        if (TWIDDLES) multiply_by_twiddles(start, row, x);
        if (!BY_BLOCK) {
#define STORE(j) store_element(start + ((row + j) << log_r), x[j]);
            EACH_HELD(STORE)
        } else {
            // Adjacent invocations store adjacent elements.
            put_held(i, LAST, x);
            barrier();
            if (REVERSES) {
                EACH_LOCAL(k, TILE) {
                    Position position = store_position(tile, k);
                    LAZY stored;
                    get_tile(place_at(position), stored);
                    store_element(store_index(position), stored);
                }
            } else {
#define STORE_IN_BLOCK(j)                                                                       \
                {                                                                               \
                    uint k = j * (TILE / HELD) + i;                                             \
                    LAZY stored;                                                                \
                    get_tile(place(k & (A - 1), k >> LEVELS), stored);                          \
                    store_element((tile << (LEVELS + COLUMNS)) + k, stored);                    \
                }
                EACH_HELD(STORE_IN_BLOCK)
            }
        }
    } while (find_next_tile(tile));
}
#endif
