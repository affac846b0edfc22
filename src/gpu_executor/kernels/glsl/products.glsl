// The Montgomery product and square on short limbs. Include limbs.glsl first.
//
// With L limbs, a product is 2 L^2 + L products of limbs (L^2 for x * y, L^2 for m * p, L for the
// digits of m), a square 3 L^2 / 2 + 3 L / 2. Each is one 32 x 32 -> 64-bit multiply-add; carries
// are propagated once per column. On an NVIDIA H200: 22.3 G products/s at 381 bits, where full
// 32-bit limbs give 16.6.
//
// All loops have constant bounds, with conditions inside for columns that are shorter: some drivers
// do not unroll a loop whose length depends on another loop's variable.

#include "spec_ids.glsl"

layout(constant_id = ID_NEGATIVE_INVERSE) const uint NEGATIVE_INVERSE = 0; // -1/p mod 2^LIMB_BITS

#ifdef LIMB_FORM
// The Montgomery factor is 2^(LIMBS * LIMB_BITS): no operand is shifted.
const uint SQUARE_ODD = 0;
#else
// Both factors of a square have the same limbs, so each is shifted by half of SHIFT. If SHIFT is
// odd, every product is doubled once more.
const uint SQUARE_SHIFT = SHIFT / 2;
const uint SQUARE_ODD = SHIFT % 2;
#endif

// p = 1 mod 2^LIMB_BITS, as in scalar fields of high two-adicity. Clearing the lowest limb then
// takes no multiplication: 50.0 instead of 47.0 G products/s at 255 bits (NVIDIA H200).
const bool LOW_LIMB_IS_ONE = NEGATIVE_INVERSE == LIMB_MASK;

// 2^(64 - 2 * LIMB_BITS) = 256, 64 or 16: the sum of this many products of limbs may overflow 64
// bits.
const uint OVERFLOW_COUNT = 1u << (64 - 2 * LIMB_BITS);

uint64_t mul_wide(uint x, uint y) {
    return uint64_t(x) * uint64_t(y);
}

// The m for which t + m * p has a lowest limb of zero.
uint quotient_digit(uint64_t t) {
    return (LOW_LIMB_IS_ONE ? 0u - uint(t) : uint(t) * NEGATIVE_INVERSE) & LIMB_MASK;
}

// The carry of that zero limb into the next one. If p[0] = 1, it is t / 2^LIMB_BITS rounded up.
uint64_t carry_of_low_limb(uint64_t t, uint m, uint p0) {
    uint64_t added = LOW_LIMB_IS_ONE ? uint64_t(LIMB_MASK) : mul_wide(m, p0);
    return (t + added) >> LIMB_BITS;
}

// Products are summed column by column: t is the sum of everything of weight 2^(k * LIMB_BITS), and
// `above` takes the bits that would overflow it.

// The number of pairs of limbs i and k - i. Columns that cannot overflow are not folded: 29.1 instead
// of 28.2 G squares/s and 22.7 instead of 22.2 G products/s at 381 bits (NVIDIA H200).
uint count_pairs(uint k) {
    return min(k + 1, 2 * LIMBS - 1 - k);
}

void fold(inout uint64_t t, inout uint64_t above) {
    above += t >> LIMB_BITS;
    t &= LIMB_MASK;
}

// Adds the products of limbs i and k - i.
void add_column(
    uint k, uint x[LIMBS], uint y[LIMBS], inout uint64_t t, inout uint64_t above
) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        if (i <= k && k - i < LIMBS) t += mul_wide(x[i], y[k - i]);
        if (LIMBS >= OVERFLOW_COUNT && (i + 1) % (OVERFLOW_COUNT - 1) == 0) fold(t, above);
    }
}

// The same for y = x: products of different limbs occur twice, so each is computed once and
// doubled.
void add_square_column(uint k, uint x[LIMBS], inout uint64_t t, inout uint64_t above) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        if (2 * i < k && k - i < LIMBS) t += mul_wide(x[i], x[k - i] << (1 + SQUARE_ODD));
        if (2 * i == k) t += mul_wide(x[i], x[i] << SQUARE_ODD);
        bool too_long = LIMBS * (1 + SQUARE_ODD) >= OVERFLOW_COUNT;
        if (too_long && (i + 1) % ((OVERFLOW_COUNT - 1) / (2 << SQUARE_ODD)) == 0) fold(t, above);
    }
}

// Adds column k of m * p and carries into the next column. The lower LIMBS columns determine the
// digits of m, which clear them; the upper ones are the result z. Digits of m not yet known are
// zero.
void end_column(
    uint k, uint p[LIMBS], inout uint m[LIMBS], inout uint z[LIMBS], inout uint64_t t,
    uint64_t above
) {
    add_column(k, m, p, t, above);
    if (k < LIMBS) {
        m[k] = quotient_digit(t);
        t = carry_of_low_limb(t, m[k], p[0]) + above;
    } else {
        // The topmost limb keeps its carry: 2p may have one bit more than the limbs.
        bool topmost = k + 1 == 2 * LIMBS;
        z[k - LIMBS] = topmost ? uint(t + (above << LIMB_BITS)) : uint(t) & LIMB_MASK;
        t = (t >> LIMB_BITS) + above;
    }
}

// x * y / 2^(LIMBS * LIMB_BITS) mod p, below 2p if x * y is below p * 2^(LIMBS * LIMB_BITS).
void mul_limbs(uint x[LIMBS], uint y[LIMBS], out uint z[LIMBS]) {
    uint p[LIMBS], m[LIMBS];
    load_modulus_limbs(p);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) m[i] = z[i] = 0;
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        uint64_t above = 0;
        add_column(k, x, y, t, above);
        if (count_pairs(k) * 2 >= OVERFLOW_COUNT) fold(t, above);
        end_column(k, p, m, z, t, above);
    }
}

#ifdef LIMB_FORM
// (a * b + c * d) / 2^(LIMBS * LIMB_BITS) mod p: two products and one reduction. Below 2p if the
// sum is below p * 2^(LIMBS * LIMB_BITS).
void mul_add_limbs(uint a[LIMBS], uint b[LIMBS], uint c[LIMBS], uint d[LIMBS], out uint z[LIMBS]) {
    uint p[LIMBS], m[LIMBS];
    load_modulus_limbs(p);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) m[i] = z[i] = 0;
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        uint64_t above = 0;
        add_column(k, a, b, t, above);
        if (count_pairs(k) * 2 >= OVERFLOW_COUNT) fold(t, above);
        add_column(k, c, d, t, above);
        if (count_pairs(k) * 3 >= OVERFLOW_COUNT) fold(t, above);
        end_column(k, p, m, z, t, above);
    }
}

// The same products row by row, for kernels that wait for each product. A sum of one column is a
// chain of multiply-adds, each of which waits for the one before; those of a row are independent.
// t[j] is the sum of everything of weight 2^(j * LIMB_BITS), after a division by 2^LIMB_BITS for
// each row.

void add_row(uint x, uint y[LIMBS], inout uint64_t t[LIMBS]) {
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[j] += mul_wide(x, y[j]);
}

// Adds the multiple of p that clears t[0], and divides by 2^LIMB_BITS.
void end_row(uint p[LIMBS], inout uint64_t t[LIMBS]) {
    uint m = quotient_digit(t[0]);
    uint64_t carry = carry_of_low_limb(t[0], m, p[0]);
    [[unroll]] for (uint j = 1; j < LIMBS; ++j) t[j - 1] = t[j] + mul_wide(m, p[j]);
    t[LIMBS - 1] = 0;
    t[0] += carry;
}

// Carries everything above LIMB_BITS bits into the next sum, at once for all sums.
void fold_row(inout uint64_t t[LIMBS]) {
    uint64_t carry = 0;
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
        uint64_t above = t[j] >> LIMB_BITS;
        t[j] = (j + 1 < LIMBS ? t[j] & LIMB_MASK : t[j]) + carry;
        carry = above;
    }
}

void carry_row(uint64_t t[LIMBS], out uint z[LIMBS]) {
    uint64_t carry = 0;
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
        carry += t[j];
        z[j] = j + 1 < LIMBS ? uint(carry) & LIMB_MASK : uint(carry);
        carry >>= LIMB_BITS;
    }
}

void mul_limbs_by_rows(uint x[LIMBS], uint y[LIMBS], out uint z[LIMBS]) {
    uint p[LIMBS];
    uint64_t t[LIMBS];
    load_modulus_limbs(p);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) t[i] = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        add_row(x[i], y, t);
        end_row(p, t);
        if ((i + 1) % ((OVERFLOW_COUNT - 1) / 2) == 0) fold_row(t);
    }
    carry_row(t, z);
}

void mul_add_limbs_by_rows(
    uint a[LIMBS], uint b[LIMBS], uint c[LIMBS], uint d[LIMBS], out uint z[LIMBS]
) {
    uint p[LIMBS];
    uint64_t t[LIMBS];
    load_modulus_limbs(p);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) t[i] = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        add_row(a[i], b, t);
        add_row(c[i], d, t);
        end_row(p, t);
        if ((i + 1) % ((OVERFLOW_COUNT - 1) / 3) == 0) fold_row(t);
    }
    carry_row(t, z);
}
#endif

// x^2 * 2^SQUARE_ODD / 2^(LIMBS * LIMB_BITS) mod p, below 2p: the Montgomery square of an element
// that words_to_limbs shifted by SQUARE_SHIFT.
void square_limbs(uint x[LIMBS], out uint z[LIMBS]) {
    uint p[LIMBS], m[LIMBS];
    load_modulus_limbs(p);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) m[i] = z[i] = 0;
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        uint64_t above = 0;
        add_square_column(k, x, t, above);
        if (count_pairs(k) * (2 + SQUARE_ODD) >= OVERFLOW_COUNT) fold(t, above);
        end_column(k, p, m, z, t, above);
    }
}
