// A pass of decimation in time: bit-reversed order in, natural order out; small distances first.
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
            if (TWIDDLES) multiply_by_twiddle(x, position);
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
