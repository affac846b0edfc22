// Rescue-Prime Optimized over Goldilocks. A round multiplies by a matrix, adds constants and raises to
// the power 7; and does the same with the power 1/7 in the place of 7.
//
// `constant` has WIDTH numbers for each half of a round, then the first row of the matrix, which is
// circulant and has entries below 2^24.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../sponge_push.glsl"
#include "../../element.glsl"
#include "../state.glsl"

layout(constant_id = ID_ROUNDS) const uint ROUNDS = 7;

CONSTANTS_IN(2, constant)

const uint MATRIX = 2 * ROUNDS * WIDTH;

uint round_constants;
uint64_t low_sum, high_sum;

// x^(2^squares) * tail
uint64_t square_and_multiply(uint64_t x, uint squares, uint64_t tail) {
    [[dont_unroll]] for (uint i = 0; i < squares; ++i) f_square(x, x);
    f_mul(x, tail, x);
    return x;
}

// x^(1/7): the exponent is 0x92492491b6db6db7. e10 has the exponent of ten times the bits 100, and t
// that of e10, a bit 0 and e10 again. 72 products.
void take_seventh_root(inout uint64_t x) {
    uint64_t x2, x4, e2, e4, e8, e10, t, u;
    f_square(x, x2);
    f_square(x2, x4);
    e2 = square_and_multiply(x4, 3, x4); // 100 twice
    e4 = square_and_multiply(e2, 6, e2);
    e8 = square_and_multiply(e4, 12, e4);
    e10 = square_and_multiply(e8, 6, e2);
    t = square_and_multiply(e10, 31, e10);
    f_square(t, t);
    f_mul(t, e10, t);
    f_square(t, t);
    f_square(t, t);
    f_mul(x2, x4, u);
    f_mul(u, x, u);
    f_mul(t, u, x);
}

void power_lane(uint lane) {
    uint64_t x, added;
    get_state(lane, x);
    load_constant(round_constants + lane, added);
    f_add(x, added, x);
    n_power(x, x);
    put_state(lane, x);
}

void root_lane(uint lane) {
    uint64_t x, added;
    get_state(lane, x);
    load_constant(round_constants + lane, added);
    f_add(x, added, x);
    take_seventh_root(x);
    put_state(lane, x);
}

void add_lane_term(uint row, uint lane) {
    uint64_t x, factor;
    get_shared(lane, x);
    load_constant(MATRIX + (lane + WIDTH - row) % WIDTH, factor);
    low_sum += (x & EPSILON) * factor;
    high_sum += (x >> 32) * factor;
}

// Halves of elements times small factors are summed, and reduced once: the sums have 61 bits at most.
void mix_lane(uint row) {
    low_sum = high_sum = 0;
    if (UNROLLED) {
        [[unroll]] for (uint lane = 0; lane < WIDTH; ++lane) add_lane_term(row, lane);
    } else {
        [[dont_unroll]] for (uint lane = 0; lane < WIDTH; ++lane) add_lane_term(row, lane);
    }
    uint64_t low = low_sum + (high_sum << 32), high = high_sum >> 32;
    if (low < low_sum) ++high;
    put_mixed(row, reduce(high, low));
}

void permute() {
    [[dont_unroll]] for (uint r = 0; r < 2 * ROUNDS; ++r) {
        round_constants = r * WIDTH;
        share_state();
        EACH_LANE(mix_lane, WIDTH)
        EACH_LANE(take_mixed, WIDTH)
        if (r % 2 == 0) { EACH_LANE(power_lane, WIDTH) }
        else { EACH_LANE(root_lane, WIDTH) }
    }
}

#include "../sponge.glsl"
