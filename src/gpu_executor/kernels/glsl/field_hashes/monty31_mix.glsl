// The internal matrix of Poseidon2 in the family MONTY31, with lazily reduced numbers. On an NVIDIA H200
// sums by multiply-adds of 64 bits gain 2 % of all permutations, quotients that are not reduced 2 %.

// p = ODD_PART * 2^TWO_ADICITY + 1, if there are quotients in the diagonal.
layout(constant_id = ID_ODD_PART) const uint ODD_PART = 15;
layout(constant_id = ID_TWO_ADICITY) const uint TWO_ADICITY = 27;
const uint64_t MODULUS = (uint64_t(ODD_PART) << TWO_ADICITY) + 1;

// How often R mod p, times p, is in p R, times WEIGHT.
layout(constant_id = ID_SUM_LIMIT) const uint SUM_LIMIT = 0;
const uint WEIGHT = 1024;

// Whether x / 2^k + total is left in 0 .. p + x / 2^k. Then x is below p * 2^k / (2^k - 1), and adding p to
// the sum must not overflow.
bool is_lazy(uint lane) {
    uint code = get_code(lane), k = code & AMOUNT_MASK;
    if ((code & (KIND_MASK | NEGATIVE)) != QUOTIENT || k < 2) return false;
    return 2 * MODULUS + MODULUS / ((uint64_t(1) << k) - 1) + 1 <= (uint64_t(1) << 32);
}

// The sum of all numbers but the first: that of x (R mod p), divided by R. It must be below p R. A sum of
// words (high, low) is also high (R mod p) + low.
void sum_rest(out uint rest) {
    uint64_t sum = 0;
    uint weight = 0;
    [[unroll]] for (uint lane = 1; lane < WIDTH; ++lane) {
        if (SUM_LIMIT < 4 * WEIGHT) {
            add_term_to(lane - 1, state[lane], rest);
            continue;
        }
        uint own = is_lazy(lane) ? 2 * WEIGHT : WEIGHT;
        // The exact bound of long quotients is close to p.
        if (is_lazy(lane) && (get_code(lane) & AMOUNT_MASK) > 7) own = WEIGHT + WEIGHT / 64;
        if (weight + own > SUM_LIMIT) {
            sum = (sum >> 32) * uint64_t(one) + (sum & 0xffffffffu);
            weight = 2 * WEIGHT;
        }
        sum += uint64_t(state[lane]) * uint64_t(one);
        weight += own;
    }
    if (SUM_LIMIT >= 4 * WEIGHT) {
        uint m = uint(sum) * (0 - inverse);
        rest = reduce_once(uint((sum + uint64_t(m) * uint64_t(modulus)) >> 32));
    }
}

// total + x / 2^k, or total - x / 2^k. The lowest bits of x are divided by 2^-k = -ODD_PART * 2^(TWO_ADICITY - k).
void add_quotient(uint x, uint k, bool is_negative, bool lazy, out uint z) {
    uint low = (x & ((1u << k) - 1)) * (ODD_PART << (TWO_ADICITY - k)), high = x >> k;
    if (is_negative) z = reduce_once(lift_negative(total - high) + low);
    else if (lazy) z = lift_negative(high + total - low);
    else if (k == 1) z = reduce_once(high + total + (x & 1) * ((modulus >> 1) + 1));
    else z = reduce_once(lift_negative(high - low) + total);
}

void reduce_lane(uint lane) {
    if (is_lazy(lane)) state[lane] = reduce_once(state[lane]);
}

// Numbers below p, for the external matrix.
void reduce_lanes() { EACH_LANE(reduce_lane, WIDTH) }
