// Poseidon2: an external matrix made of blocks of four numbers, and an internal matrix of ones with
// another diagonal.
//
// `constant` has WIDTH numbers for each full round, WIDTH numbers of the diagonal less one, and a
// number for each partial round. States of two and three numbers have the diagonals less one
// (1, 2) and (1, 1, 2).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "sponge_push.glsl"
#include "../element.glsl"
#include "../spec_words.glsl"
#include "state.glsl"

layout(constant_id = ID_FULL_ROUNDS) const uint FULL_ROUNDS = 8;
layout(constant_id = ID_PARTIAL_ROUNDS) const uint PARTIAL_ROUNDS = 56;
// Whether blocks are multiplied by circ(2, 3, 1, 1), and not by the matrix of the paper.
layout(constant_id = ID_CIRCULANT) const bool CIRCULANT = false;

CONSTANTS_IN(2, constant)

const uint HALF = FULL_ROUNDS / 2;
const uint DIAGONAL = FULL_ROUNDS * WIDTH, PARTIAL_CONSTANTS = DIAGONAL + WIDTH;
const uint BLOCKS = WIDTH / 4;
const bool HAS_BLOCKS = WIDTH % 4 == 0;

bool is_full = false;
uint round_constants;

void power_lane(uint lane) {
    if (!is_full && lane > 0) return;
    NUMBER x, added;
    get_state(lane, x);
    load_constant(round_constants + lane, added);
    n_add_factor(x, added, x);
    n_power(x, x);
    put_state(lane, x);
}

#ifdef FAMILY_WIDE
#include "wide_mix.glsl"
#else
#include "scalar_mix.glsl"
#endif

#ifdef FAMILY_WIDE
// One loop, so that there is less code to compile. Round 0 is the external matrix alone.
void permute() {
    [[dont_unroll]] for (uint r = 0; r <= FULL_ROUNDS + PARTIAL_ROUNDS; ++r) {
        is_full = r <= HALF || r > HALF + PARTIAL_ROUNDS;
        round_constants = (r <= HALF ? r - 1 : r - PARTIAL_ROUNDS - 1) * WIDTH;
        if (!is_full) round_constants = PARTIAL_CONSTANTS + r - HALF - 1;
        if (r > 0) { EACH_LANE(power_lane, WIDTH) }
        mix();
    }
}
#else
#ifdef GROUPED
void power_lanes() { EACH_LANE(power_lane, WIDTH) }
#else
// Constants of full rounds move in vectors of 16 bytes: the width is a multiple of 4.
layout(set = 0, binding = 2, std430) readonly buffer ConstantVectors { VECTOR constant_vectors[]; };

void power_vector(uint first) {
    VECTOR added = constant_vectors[(round_constants + first) / SCALARS_PER_VECTOR];
    [[unroll]] for (uint k = 0; k < SCALARS_PER_VECTOR; ++k) {
        f_add(state[first + k], added[k], state[first + k]);
        n_power(state[first + k], state[first + k]);
    }
}

void power_lanes() {
    [[unroll]] for (uint at = 0; at + SCALARS_PER_VECTOR <= WIDTH; at += SCALARS_PER_VECTOR) {
        power_vector(at);
    }
}

void run_partial_round() {
    power_lane(0);
    mix_internally();
}
#endif

void run_full_rounds(uint first) {
    is_full = true;
    [[dont_unroll]] for (uint r = first; r < first + HALF; ++r) {
        round_constants = r * WIDTH;
        power_lanes();
        mix_externally();
    }
}

void permute() {
    mix_externally();
    run_full_rounds(0);
    [[dont_unroll]] for (uint r = 0; r < PARTIAL_ROUNDS; ++r) {
        round_constants = PARTIAL_CONSTANTS + r;
        run_partial_round();
    }
    reduce_lanes();
    run_full_rounds(HALF);
}
#endif

#include "sponge.glsl"
