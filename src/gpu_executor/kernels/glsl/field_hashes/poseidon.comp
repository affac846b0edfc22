// Poseidon: full rounds with a dense matrix, partial rounds with sparse ones.
//
// A partial round adds a constant to the first number alone, raises that number to a power, and
// multiplies by a sparse matrix: a first row, a first column, and the identity
// (hashes/poseidon.py computes both from the rounds of the definition). `constant` has WIDTH numbers
// for each full round; the matrix of full rounds, row by row; that of the last full round before the
// partial ones; and for each partial round its constant, the first row, and the first column without
// its first number.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "sponge_push.glsl"
#include "../element.glsl"
#include "state.glsl"

layout(constant_id = ID_FULL_ROUNDS) const uint FULL_ROUNDS = 8;
layout(constant_id = ID_PARTIAL_ROUNDS) const uint PARTIAL_ROUNDS = 57;

CONSTANTS_IN(2, constant)

const uint HALF = FULL_ROUNDS / 2;
const uint MATRIX = FULL_ROUNDS * WIDTH, LAST_MATRIX = MATRIX + WIDTH * WIDTH;
const uint SPARSE = LAST_MATRIX + WIDTH * WIDTH;

bool is_full;
uint round_constants, matrix;
SUM sum;

void add_lane_term(uint row, uint lane) {
    NUMBER x, factor;
    get_shared(lane, x);
    load_constant(row + lane, factor);
    add_term(x, factor, lane, sum);
}

#ifdef GROUPED
#include "poseidon_group.glsl"
#else
NUMBER first_number;

// Both kinds of rounds have the same code, so that there is less of it to compile and to fetch.
void power_lane(uint lane) {
    if (!is_full && lane > 0) return;
    NUMBER x, added;
    get_state(lane, x);
    load_constant(round_constants + lane, added);
    n_add_factor(x, added, x);
    n_power(x, x);
    put_state(lane, x);
}

// A row of the matrix times the state; in partial rounds, a number of the first column times the first
// number, plus the number of the row.
void mix_lane(uint lane) {
    NUMBER x, factor;
    begin_sum(sum);
    bool is_row = is_full || lane == 0;
    uint row = matrix + (is_full ? lane * WIDTH : 0);
    if (UNROLLED) {
        if (is_row) {
            [[unroll]] for (uint i = 0; i < WIDTH; ++i) add_lane_term(row, i);
        } else {
            load_constant(matrix + WIDTH - 1 + lane, factor);
            add_term(first_number, factor, 0, sum);
        }
    } else {
        uint terms = is_row ? WIDTH : 1;
        row = is_row ? row : matrix + WIDTH - 1 + lane;
        [[dont_unroll]] for (uint i = 0; i < terms; ++i) add_lane_term(row, i);
    }
    end_sum(sum, x);
    if (!is_row) {
        get_state(lane, factor);
        n_add(x, factor, x);
    }
    put_mixed(lane, x);
}

void mix() {
    get_state(0, first_number);
    EACH_LANE(mix_lane, WIDTH)
    EACH_LANE(take_mixed, WIDTH)
}
#endif

void permute() {
    [[dont_unroll]] for (uint r = 0; r < FULL_ROUNDS + PARTIAL_ROUNDS; ++r) {
        is_full = r < HALF || r >= HALF + PARTIAL_ROUNDS;
        round_constants = (r < HALF ? r : r - PARTIAL_ROUNDS) * WIDTH;
        matrix = r + 1 == HALF ? LAST_MATRIX : MATRIX;
        if (!is_full) {
            round_constants = SPARSE + (r - HALF) * 2 * WIDTH;
            matrix = round_constants + 1;
        }
        EACH_LANE(power_lane, WIDTH)
        mix();
    }
}

#include "sponge.glsl"
