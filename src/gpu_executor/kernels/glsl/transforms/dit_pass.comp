// A pass of decimation in time: bit-reversed order in, natural order out; small distances first.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../transform.glsl"

#ifndef IN_ROUNDS
void main() {
    lazy_begin();
    load_roots();
    EACH_TILE(tile) {
        barrier();
        EACH_LOCAL(i, TILE) {
            Position position = load_position(tile, i);
            ELEMENT words;
            LAZY x;
            load_x(position.index, words);
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
    }
}
#else
#include "../transform_rounds.glsl"

void main() {
    load_roots();
    uint i = gl_LocalInvocationID.x, log_r = log_m - LEVELS, last = ROUNDS - 1;
    EACH_TILE(tile) {
        LAZY x[HELD];
        uint start = column_start(tile, get_column(i)), row = first_row(i, last);
        barrier(); // the roots are there, and nobody reads the tile any more
        if (!BY_BLOCK) {
            uint r = start & ((1u << log_r) - 1u), e = reverse_bits(row, LEVELS) * r;
            [[unroll]] for (uint j = 0; j < HELD; ++j) {
                uint own = j << log_stride(last);
                load_element(start + ((row + own) << log_r), x[j]);
                if (TWIDDLES) multiply_by_twiddle(x[j], e + reverse_bits(own, LEVELS) * r);
            }
        } else {
            // Adjacent invocations load adjacent elements.
            EACH_LOCAL(k, TILE) {
                Position position = load_position(tile, k);
                LAZY loaded;
                load_element(position.index, loaded);
                if (TWIDDLES) multiply_by_twiddle(loaded, 0);
                put_tile(place_at(position), loaded);
            }
            barrier();
            get_held(i, last, x);
        }
        [[unroll]] for (uint k = 0; k < ROUNDS; ++k) {
            uint round = last - k;
            if (k > 0) {
                barrier();
                put_held(i, round + 1, x);
                barrier();
                get_held(i, round, x);
            }
            run_round(i, round, true, x);
        }
        row = first_row(i, 0);
        if (!REVERSES) {
            [[unroll]] for (uint j = 0; j < HELD; ++j) {
                store_element(start + (row << log_r) + (j << (log_stride(0) + log_r)), x[j]);
            }
        } else {
            barrier();
            put_held(i, 0, x);
            barrier();
            EACH_LOCAL(k, TILE) {
                Position position = store_position(tile, k);
                LAZY stored;
                get_tile(place_at(position), stored);
                store_element(store_index(position), stored);
            }
        }
    }
}
#endif
