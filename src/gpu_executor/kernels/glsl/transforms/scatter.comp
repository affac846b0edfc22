// A pass forwards: natural order in, bit-reversed out; large distances first (decimation in frequency).
//
// One butterfly an invocation at a time: 2^20 of BLS12-381 Fr took 0.42 ms on an NVIDIA H200 so, and
// 0.47 ms with four elements and two levels in registers, whose code takes three times as long to
// compile.
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
            put_tile(spot.in_tile, x);
        }
        barrier();
        for (uint level = 0; level < LEVELS; ++level) {
            uint log_distance = LEVELS - 1 - level;
            EACH_OWN(i, TILE / 2) {
                Pair at = pair(i, log_distance);
                WORK u, v, sum, difference;
                get_tile(at.first, u);
                get_tile(at.second, v);
                w_add(u, v, sum);
                if (log_distance > 0) {
                    WORK root;
                    get_roots(at.root, root);
                    w_sub_mul(u, v, root, difference);
                } else {
                    w_sub(u, v, difference); // all roots are 1
                }
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
            if (TWISTS) twist(x, spot);
            w_to(x, words);
            store_y(place(spot), words);
        }
    }
}
