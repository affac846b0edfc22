// A pass of decimation in frequency: natural order in, bit-reversed order out; large distances
// first.
//
// An invocation computes one butterfly at a time. 2^20 elements of BLS12-381 Fr took 0.42 ms on an
// NVIDIA H200; with four elements and two levels in registers they took 0.47 ms, and that code
// takes three times as long to compile.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../transform.glsl"

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
            if (TWIDDLES) multiply_by_twiddle(x, position);
            lazy_to_element(x, words);
            store_y(store_index(position), words);
        }
    }
}
