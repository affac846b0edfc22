// The matrices of Poseidon2 in families whose elements are one integer.

ELEMENT total, total1, total2, total3;

void add_to_total(uint lane) {
    NUMBER x;
    get_state(lane, x);
    n_add(total, x, total);
}

void n_double(NUMBER x, out NUMBER z) { f_add(x, x, z); }

// Multiplies numbers 4 i to 4 i + 3 by the matrix of blocks, and adds the results to the totals.
void mix_block(uint i) {
    NUMBER a, b, c, d, ab, cd;
    get_state(4 * i, a);
    get_state(4 * i + 1, b);
    get_state(4 * i + 2, c);
    get_state(4 * i + 3, d);
    n_add(a, b, ab);
    n_add(c, d, cd);
    if (CIRCULANT) {
        // The sum of all four, and 2 a + 3 b + c + d = sum + b + (a + b) and so on.
        NUMBER sum, sum_b, sum_d;
        n_add(ab, cd, sum);
        n_add(sum, b, sum_b);
        n_add(sum, d, sum_d);
        n_double(a, a);
        n_double(c, c);
        n_add(sum_d, a, d); // 3 a + b + c + 2 d
        n_add(sum_b, ab, a); // 2 a + 3 b + c + d
        n_add(sum_b, c, b); // a + 2 b + 3 c + d
        n_add(sum_d, cd, c); // a + b + 2 c + 3 d
    } else {
        n_double(b, b);
        n_double(d, d);
        n_add(b, cd, b); // 2 b + c + d
        n_add(d, ab, d); // a + b + 2 d
        n_double(cd, cd);
        n_double(cd, cd);
        n_double(ab, ab);
        n_double(ab, ab);
        n_add(cd, d, cd); // a + b + 4 c + 6 d
        n_add(ab, b, ab); // 4 a + 6 b + c + d
        n_add(d, ab, a); // 5 a + 7 b + c + 3 d
        n_add(b, cd, c); // a + 3 b + 5 c + 7 d
        n_copy(ab, b);
        n_copy(cd, d);
    }
    put_state(4 * i, a);
    put_state(4 * i + 1, b);
    put_state(4 * i + 2, c);
    put_state(4 * i + 3, d);
    n_add(total, a, total);
    n_add(total1, b, total1);
    n_add(total2, c, total2);
    n_add(total3, d, total3);
}

void add_totals(uint i) {
    NUMBER x;
    get_state(4 * i, x);
    n_add(x, total, x);
    put_state(4 * i, x);
    get_state(4 * i + 1, x);
    n_add(x, total1, x);
    put_state(4 * i + 1, x);
    get_state(4 * i + 2, x);
    n_add(x, total2, x);
    put_state(4 * i + 2, x);
    get_state(4 * i + 3, x);
    n_add(x, total3, x);
    put_state(4 * i + 3, x);
}

void add_total(uint lane) {
    NUMBER x;
    get_state(lane, x);
    n_add(x, total, x);
    put_state(lane, x);
}

void mix_externally() {
    n_zero(total);
    if (HAS_BLOCKS) {
        n_zero(total1);
        n_zero(total2);
        n_zero(total3);
        EACH_LANE(mix_block, BLOCKS)
        if (BLOCKS > 1) { EACH_LANE(add_totals, BLOCKS) }
    } else {
        EACH_LANE(add_to_total, WIDTH)
        EACH_LANE(add_total, WIDTH)
    }
}

void scale_lane(uint lane) {
    NUMBER x, factor;
    get_state(lane, x);
    if (HAS_BLOCKS) {
        load_constant(DIAGONAL + lane, factor);
        n_mul(x, factor, x);
    } else if (lane + 1 == WIDTH) {
        n_double(x, x);
    }
    n_add(x, total, x);
    put_state(lane, x);
}

void mix_internally() {
    n_zero(total);
    EACH_LANE(add_to_total, WIDTH)
    EACH_LANE(scale_lane, WIDTH)
}

void mix() {
    if (is_full) mix_externally();
    else mix_internally();
}
