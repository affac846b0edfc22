// The matrices of Poseidon2 in families whose elements are one integer.

// total + x, and x if it is the first term.
void add_term_to(uint i, ELEMENT x, inout ELEMENT total) {
    if (i == 0) total = x;
    else f_add(total, x, total);
}

void n_double(NUMBER x, out NUMBER z) { f_add(x, x, z); }

// Multiplies four numbers by the matrix of blocks.
void multiply_block(inout NUMBER a, inout NUMBER b, inout NUMBER c, inout NUMBER d) {
    NUMBER ab, cd;
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
}

#ifdef GROUPED
#include "group_mix.glsl"
#else
ELEMENT total, total1, total2, total3;

void add_to_total(uint lane) { add_term_to(lane, state[lane], total); }

// Multiplies numbers 4 i to 4 i + 3 by the matrix of blocks, and adds the results to the totals.
void mix_block(uint i) {
    NUMBER a, b, c, d;
    get_state(4 * i, a);
    get_state(4 * i + 1, b);
    get_state(4 * i + 2, c);
    get_state(4 * i + 3, d);
    multiply_block(a, b, c, d);
    put_state(4 * i, a);
    put_state(4 * i + 1, b);
    put_state(4 * i + 2, c);
    put_state(4 * i + 3, d);
    add_term_to(i, a, total);
    add_term_to(i, b, total1);
    add_term_to(i, c, total2);
    add_term_to(i, d, total3);
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
    if (HAS_BLOCKS) {
        EACH_LANE(mix_block, BLOCKS)
        if (BLOCKS > 1) { EACH_LANE(add_totals, BLOCKS) }
    } else {
        EACH_LANE(add_to_total, WIDTH)
        EACH_LANE(add_total, WIDTH)
    }
}

// --- the internal matrix: ones, and another diagonal ---

// How a number of the diagonal is multiplied: by the constant, or as its code says, without a product.
SPEC_WORDS(ID_DIAGONAL_CODES, DIAGONAL_CODES)
const uint AMOUNT_MASK = 255, MULTIPLE = 1 << 8, QUOTIENT = 2 << 8, SHIFT_LEFT = 3 << 8;
const uint KIND_MASK = 3 << 8, NEGATIVE = 1 << 15;

uint get_code(uint lane) {
    const uint codes[24] = SPEC_WORD_ARRAY(DIAGONAL_CODES);
    return lane < 24 ? codes[lane] : 0;
}

// `factor` times x, for a factor from 1 to 4.
void multiply_small(ELEMENT x, uint factor, out ELEMENT z) {
    z = x;
    if (factor > 1) f_add(z, z, z);
    if (factor == 3) f_add(z, x, z);
    if (factor == 4) f_add(z, z, z);
}

#ifdef FAMILY_MONTY31
#include "monty31_mix.glsl"
#else
// The sum of all numbers but the first.
void sum_rest(out ELEMENT rest) {
    [[unroll]] for (uint lane = 1; lane < WIDTH; ++lane) add_term_to(lane - 1, state[lane], rest);
}

bool is_lazy(uint lane) { return false; }
void reduce_lanes() {}

// total + x / 2^k, or total - x / 2^k. In the family MERSENNE31, x / 2^k is x * 2^(31 - k).
void add_quotient(ELEMENT x, uint k, bool is_negative, bool lazy, out ELEMENT z) {
    z = x;
#ifdef FAMILY_GOLDILOCKS
    // 2^-k = -(2^32 - 1) * 2^(32 - k)
    uint64_t low = x & ((uint64_t(1) << k) - 1);
    f_sub(x >> k, ((low << 32) - low) << (32 - k), z);
#endif
    if (is_negative) f_sub(total, z, z);
    else f_add(total, z, z);
}
#endif

void scale_lane(uint lane) {
    ELEMENT x = state[lane], factor;
    uint code = get_code(lane), kind = code & KIND_MASK, amount = code & AMOUNT_MASK;
    bool is_negative = (code & NEGATIVE) != 0;
    if (kind == QUOTIENT) {
        add_quotient(x, amount, is_negative, is_lazy(lane), state[lane]);
        return;
    }
    if (kind == MULTIPLE) {
        multiply_small(x, amount, x);
    } else if (kind == SHIFT_LEFT) {
#ifdef FAMILY_MERSENNE31
        x = (x << amount & P) | (x >> (31 - amount));
#endif
    } else {
        load_constant(DIAGONAL + lane, factor);
        f_mul(x, factor, x);
    }
    if (is_negative) f_sub(total, x, state[lane]);
    else f_add(total, x, state[lane]);
}

void mix_internally() {
    ELEMENT rest, first = state[0];
    sum_rest(rest);
    f_add(rest, first, total);
    EACH_LANE(scale_lane, WIDTH)
    // total - 2 x is shorter in this form.
    if (get_code(0) == (NEGATIVE | MULTIPLE | 2)) f_sub(rest, first, state[0]);
}
#endif
