// The rounds of Poseidon in a group of invocations. In a partial round lane 0 raises its number to the
// power, while each other lane multiplies its own by the number of the first row: lane 0 then adds
// these terms. The round takes a product more than the power, and one barrier.

NUMBER term;

// From z = x^2 to x^EXPONENT, with the products of n_power.
void finish_power(NUMBER x, inout NUMBER z) {
    const int first = findMSB(EXPONENT) - 1;
    [[unroll]] for (int bit = first; bit >= 0; --bit) {
        if (bit < first) n_square(z, z);
        if ((EXPONENT >> bit & 1) == 1) n_mul(z, x, z);
    }
}

void power_lane(uint lane) {
    NUMBER x, factor;
    bool powers = is_full || lane == 0;
    get_state(lane, x);
    load_constant((powers ? round_constants : matrix) + lane, factor);
    if (powers) {
        n_add_factor(x, factor, x);
        n_copy(x, factor);
    }
    n_mul(x, factor, term);
    if (powers) finish_power(x, term);
}

// A row of the matrix times the state; in partial rounds, a number of the first row or of the first
// column times the first number, plus the terms of the others or the lane's own number.
void mix_lane(uint lane) {
    NUMBER x, factor;
    if (is_full) {
        uint row = matrix + lane * WIDTH;
        begin_sum(sum);
        if (UNROLLED) {
            [[unroll]] for (uint i = 0; i < WIDTH; ++i) add_lane_term(row, i);
        } else {
            [[dont_unroll]] for (uint i = 0; i < WIDTH; ++i) add_lane_term(row, i);
        }
        end_sum(sum, x);
    } else {
        get_shared(0, x);
        load_constant(matrix + lane + (lane == 0 ? 0 : WIDTH - 1), factor);
        n_mul(x, factor, x);
        uint terms = lane == 0 ? WIDTH : 2;
        [[dont_unroll]] for (uint i = 1; i < terms; ++i) {
            if (lane == 0) get_shared(i, factor);
            else get_state(lane, factor);
            n_add(x, factor, x);
        }
    }
    put_state(lane, x);
}

void mix() {
    share_number(term);
    EACH_LANE(mix_lane, WIDTH)
}
