// A pass of decimation in time: bit-reversed order in, natural order out; small distances first.
// u, v become u + v w and u - v w.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../../transform_levels.glsl"

void run_level(uint log_distance) {
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
}

void main() {
    lazy_begin();
    load_roots();
    uint tile = FIRST_TILE;
    do {
        load_tile(tile, TWIDDLES);
        barrier();
        for (uint log_distance = 0; log_distance < LEVELS; ++log_distance) {
            run_level(log_distance);
            barrier();
        }
        store_tile(tile, false);
    } while (find_next_tile(tile));
}
