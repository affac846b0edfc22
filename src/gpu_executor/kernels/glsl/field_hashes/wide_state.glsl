// The state of a permutation in the family WIDE: WIDTH * LIMBS limbs.

#ifndef GROUPED
const uint STATE_LIMBS = WIDTH * LIMBS;
LIMB state[STATE_LIMBS];
LIMB mixed[STATE_LIMBS];

void get_state(uint i, out NUMBER z) {
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) z[k] = state[i * LIMBS + k];
}

void put_state(uint i, NUMBER x) {
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) state[i * LIMBS + k] = x[k];
}

void put_mixed(uint i, NUMBER x) {
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) mixed[i * LIMBS + k] = x[k];
}

void take_mixed(uint i) {
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) state[i * LIMBS + k] = mixed[i * LIMBS + k];
}
#endif

void n_zero(out NUMBER z) {
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) z[k] = 0;
}

void n_add_factor(NUMBER x, NUMBER y, out NUMBER z) {
    LIMB carry = 0;
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        LIMB limb = x[k] + y[k] + carry;
        z[k] = limb & LIMB_MASK;
        carry = limb >> LIMB_BITS;
    }
}

// x + y below 4p, less 2p unless it is below 2p.
void n_add(NUMBER x, NUMBER y, out NUMBER z) {
    NUMBER p, twice, sum, reduced;
    load_modulus_limbs(p);
    n_add_factor(p, p, twice);
    n_add_factor(x, y, sum);
    bool below = sub_limbs(sum, twice, reduced);
    n_select(below, sum, reduced, z);
}

// --- sums of products ---

#ifdef F64_LIMBS
#define SUM uint64_t[PRODUCT_LIMBS]

// The biases of a term are subtracted as if it were a product without a reduction.
void begin_sum(out SUM t) { begin_columns(0, t); }

void add_term(NUMBER x, NUMBER y, uint i, inout SUM t) {
    FACTOR a[LIMBS], b[LIMBS];
    to_factors(x, a);
    to_factors(y, b);
    add_products(a, b, t);
    [[unroll]] for (uint k = 0; k < PRODUCT_LIMBS; ++k) {
        t[k] += begin_column(k, 1) - begin_column(k, 0);
    }
}

void end_sum(SUM t, out NUMBER z) { reduce_limbs(t, z); }
#else
const uint SUM_LIMBS = 2 * LIMBS;
#define SUM uint64_t[SUM_LIMBS]

// Rows of products that may be added to a column between two folds.
const uint FOLD_ROWS = (OVERFLOW_COUNT - 1) / 2;
const bool FOLDS_ROWS = LIMBS > FOLD_ROWS;
// Terms between two folds, after which a reduction still fits.
const uint FOLD_TERMS = OVERFLOW_COUNT < 2 * LIMBS + 2 ? 1 : (OVERFLOW_COUNT - 2 - LIMBS) / LIMBS;

void begin_sum(out SUM t) {
    [[unroll]] for (uint k = 0; k < SUM_LIMBS; ++k) t[k] = 0;
}

// Carries everything above LIMB_BITS bits into the next column, at once for all columns.
void fold_sum(inout SUM t) {
    uint64_t carry = 0;
    [[unroll]] for (uint k = 0; k < SUM_LIMBS; ++k) {
        uint64_t above = t[k] >> LIMB_BITS;
        t[k] = (k + 1 < SUM_LIMBS ? t[k] & LIMB_MASK : t[k]) + carry;
        carry = above;
    }
}

void add_term(NUMBER x, NUMBER y, uint i, inout SUM t) {
    if (FOLDS_ROWS ? i > 0 : i > 0 && i % FOLD_TERMS == 0) fold_sum(t);
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[k + j] += mul_wide(x[k], y[j]);
        if (FOLDS_ROWS && (k + 1) % FOLD_ROWS == 0) fold_sum(t);
    }
}

// t / M mod p, below 2p if t is below p * M.
void end_sum(inout SUM t, out NUMBER z) {
    NUMBER p;
    load_modulus_limbs(p);
    if (FOLDS_ROWS) fold_sum(t);
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        uint m = quotient_digit(t[k]);
        t[k + 1] += carry_of_low_limb(t[k], m, p[0]);
        t[k] = 0;
        [[unroll]] for (uint j = 1; j < LIMBS; ++j) t[k + j] += mul_wide(m, p[j]);
        if (FOLDS_ROWS && (k + 1) % FOLD_ROWS == 0) fold_sum(t);
    }
    uint64_t carry = 0;
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        carry += t[LIMBS + k];
        z[k] = k + 1 < LIMBS ? uint(carry) & LIMB_MASK : uint(carry);
        carry >>= LIMB_BITS;
    }
}
#endif

// Constants in limb form.
#ifdef F64_LIMBS
#define CONSTANT_WORDS uvec2
#define JOIN_CONSTANT packUint2x32
#else
#define CONSTANT_WORDS uint
#define JOIN_CONSTANT
#endif
#define CONSTANTS_IN(at, name)                                                                \
    layout(set = 0, binding = at, std430) readonly buffer name##_Numbers {                    \
        CONSTANT_WORDS name##_numbers[];                                                      \
    };                                                                                        \
    void load_##name(uint i, out NUMBER z) {                                                  \
        [[unroll]] for (uint k = 0; k < LIMBS; ++k) {                                         \
            z[k] = JOIN_CONSTANT(name##_numbers[i * LIMBS + k]);                              \
        }                                                                                     \
    }
