// Numbers in limb form: LIMBS limbs in Montgomery form with the factor M = 2^(LIMBS * LIMB_BITS)
// instead of R = 2^(32 * WORDS), so M = R * 2^SHIFT. No product shifts an operand, subtracts p, or
// converts words. Powers 2^n on an NVIDIA H200: 67.8 instead of 53.8 G squares/s at 255 bits, 31.3
// instead of 25.5 at 381 bits (f64 limbs).
//
// Every number is below 2^(SHIFT - 1) * p, which is less than M / 2. With x and y below that, the
// product x * y / M + p is below (2^(SHIFT - 2) * p / R + 1) * p, and so below 2^(SHIFT - 1) * p for
// every p < R if SHIFT is at least 2. `limb_form_limbs` in kernels/families.py chooses such limbs.

#define NUMBER LIMB[LIMBS]

// The lower and the upper limb of m * p[i].
void mul_modulus_limb(LIMB m, uint i, out LIMB low, out LIMB high) {
#ifdef F64_LIMBS
    mul_halves(to_factor(m), modulus_factor(i), low, high);
    low -= LOW_BIAS;
    high -= HIGH_BIAS;
#else
    uint64_t product = mul_wide(m, modulus[i]);
    low = uint(product) & LIMB_MASK;
    high = uint(product >> LIMB_BITS);
#endif
}

// 2x mod p, shifted by SHIFT - 1: x shifted by SHIFT could be too large.
void n_from_element(ELEMENT x, out NUMBER z) {
    uint doubled[WORDS];
    f_add(x, x, doubled);
    words_to_limbs(doubled, SHIFT - 1, z);
}

// x / 2^SHIFT mod p. Adding m * p, the multiple of p that clears the lowest SHIFT bits, makes it a
// shift: (x + m * p) / 2^SHIFT is below 3p / 2.
void n_to_element(NUMBER x, out ELEMENT z) {
    LIMB p[LIMBS], lazy[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
#ifdef F64_LIMBS
    LIMB inverse = negative_inverse();
#else
    LIMB inverse = NEGATIVE_INVERSE;
#endif
    LIMB m = (x[0] * inverse) & ((LIMB(1) << SHIFT) - LIMB(1));
    LIMB carry = 0, before = 0;
    [[unroll]] for (uint i = 0; i <= LIMBS; ++i) {
        LIMB sum = carry;
        carry = 0;
        if (i < LIMBS) {
            LIMB low;
            mul_modulus_limb(m, i, low, carry);
            sum += x[i] + low;
            carry += sum >> LIMB_BITS;
            sum &= LIMB_MASK;
        }
        if (i > 0) lazy[i - 1] = (before >> SHIFT | sum << (LIMB_BITS - SHIFT)) & LIMB_MASK;
        before = sum;
    }
    reduce_once(lazy, p, reduced);
    limbs_to_words(reduced, z);
}

void n_copy(NUMBER x, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = x[i];
}

void n_select(bool condition, NUMBER x, NUMBER y, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = condition ? x[i] : y[i];
}

void n_mul(NUMBER x, NUMBER y, out NUMBER z) { mul_limbs(x, y, z); }

void n_square(NUMBER x, out NUMBER z) { square_limbs(x, z); }
