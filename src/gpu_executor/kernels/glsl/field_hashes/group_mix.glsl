// The matrices of Poseidon2 in families whose elements are one integer, in a group of invocations.

// The sum of `count` shared numbers, two at least: first, first + step and so on. Half of the additions
// wait for each other.
void sum_shared(uint first, uint count, uint step, out NUMBER sum) {
    NUMBER x, other;
    get_shared(first, sum);
    get_shared(first + step, other);
    [[unroll]] for (uint i = 2; i < count; ++i) {
        get_shared(first + i * step, x);
        if (i % 2 == 0) n_add(sum, x, sum);
        else n_add(other, x, other);
    }
    n_add(sum, other, sum);
}

// A number of a block times its matrix; without blocks, a number plus the sum of all.
void mix_lane(uint lane) {
    NUMBER a, b, c, d;
    if (HAS_BLOCKS) {
        uint first = lane & ~3u;
        get_shared(first, a);
        get_shared(first + 1, b);
        get_shared(first + 2, c);
        get_shared(first + 3, d);
        multiply_block(a, b, c, d);
        a = (lane & 2) == 0 ? (lane & 1) == 0 ? a : b : (lane & 1) == 0 ? c : d;
    } else {
        get_state(lane, a);
        sum_shared(0, WIDTH, 1, b);
        n_add(a, b, a);
    }
    put_state(lane, a);
}

// Adds the numbers of all blocks that have the same place as the lane's.
void add_blocks(uint lane) {
    NUMBER x, sum;
    get_state(lane, x);
    sum_shared(lane & 3, BLOCKS, 4, sum);
    n_add(x, sum, x);
    put_state(lane, x);
}

void mix_externally() {
    share_state();
    EACH_LANE(mix_lane, WIDTH)
    if (HAS_BLOCKS && BLOCKS > 1) {
        share_state();
        EACH_LANE(add_blocks, WIDTH)
    }
}

// Each lane raises the first number to the power for itself, meanwhile adds the others, and multiplies
// its own by the constant: the lanes do not diverge, and the round has one barrier.
void mix_internally(uint lane) {
    NUMBER first, x, factor, total;
    get_shared(0, first);
    load_constant(round_constants, factor);
    n_add_factor(first, factor, first);
    n_power(first, first);
    sum_shared(1, WIDTH - 1, 1, total);
    n_add(total, first, total);
    get_state(lane, x);
    n_select(lane == 0, first, x, x);
    load_constant(DIAGONAL + lane, factor);
    n_mul(x, factor, x);
    n_add(total, x, x);
    put_state(lane, x);
}

void run_partial_round() {
    share_state();
    EACH_LANE(mix_internally, WIDTH)
}

void reduce_lanes() {}
