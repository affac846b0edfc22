// A pass of decimation in frequency: natural order in, bit-reversed order out; large distances
// first. u, v become u + v and (u - v) w.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../../transform_levels.glsl"

void run_level(uint log_distance) {
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
}

void main() {
    lazy_begin();
    load_roots();
    uint tile = FIRST_TILE;
    do {
        load_tile(tile, false);
        barrier();
        for (uint level = 0; level < LEVELS; ++level) {
            run_level(LEVELS - 1 - level);
            barrier();
        }
        store_tile(tile, TWIDDLES);
    } while (find_next_tile(tile));
}
