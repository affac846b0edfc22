// A pass backwards: bit-reversed order in, natural out; small distances first (decimation in time).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../transform.glsl"

void main() {
    w_begin();
    load_roots();
    EACH_TILE(tile) {
        barrier();
        EACH_OWN(i, TILE) {
            Spot spot = spot(tile, i);
            ELEMENT words;
            WORK x;
            load_x(spot.at, words);
            w_from(words, x);
            if (TWISTS) twist(x, spot);
            put_tile(spot.in_tile, x);
        }
        barrier();
        for (uint log_distance = 0; log_distance < LEVELS; ++log_distance) {
            EACH_OWN(i, TILE / 2) {
                Pair at = pair(i, log_distance);
                WORK u, v, sum, difference;
                get_tile(at.first, u);
                get_tile(at.second, v);
                if (log_distance > 0) { // else all roots are 1
                    WORK root, product;
                    get_roots(at.root, root);
                    w_mul(v, root, product);
                    w_copy(product, v);
                }
                w_add(u, v, sum);
                w_sub(u, v, difference);
                put_tile(at.first, sum);
                put_tile(at.second, difference);
            }
            barrier();
        }
        EACH_OWN(i, TILE) {
            Spot spot = spot_of_outcome(tile, i);
            ELEMENT words;
            WORK x;
            get_tile(spot.in_tile, x);
            w_to(x, words);
            store_y(place(spot), words);
        }
    }
}
