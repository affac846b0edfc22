// The Montgomery product and square on short limbs. Include limbs.glsl first.
//
// Each product of two limbs is one wide multiply-add, and carries wait. On an NVIDIA H200 that is
// 23.9 G products/s at 381 bits where full 32-bit limbs give 16.6.
//
// All loops have constant bounds, with conditions inside where a sum is shorter: some drivers
// unroll no loop whose length depends on another one.

layout(constant_id = 5) const uint NEGATIVE_INVERSE = 0; // -1/p mod 2^LIMB_BITS

// Whether the products are summed row by row instead of column by column.
layout(constant_id = 56) const bool BY_ROWS = false;

// Limbs reduce by 2^(LIMBS * LIMB_BITS), memory has R = 2^(32 * WORDS). Shifting one operand left
// by the difference while it is unpacked gives R back.
const uint SHIFT = LIMBS * LIMB_BITS - 32 * WORDS;

// A square has the same limbs twice, so the shift is halved between its factors; where it is odd,
// every product is doubled once more.
const uint SQUARE_SHIFT = SHIFT / 2;
const uint SQUARE_ODD = SHIFT % 2;

// p = 1 mod 2^LIMB_BITS, as scalar fields with large powers of two in p - 1 have it. Clearing the
// lowest limb then takes no multiplication: 50.0 instead of 47.0 G products/s at 255 bits (H200).
const bool LOW_LIMB_IS_ONE = NEGATIVE_INVERSE == LIMB_MASK;

// More than 64 bits take: 16, 64 or 256 products of limbs, by their width.
const uint ROOM = 1u << (64 - 2 * LIMB_BITS);

uint64_t wide(uint x, uint y) {
    return uint64_t(x) * uint64_t(y);
}

// m, such that t + m * p has a lowest limb of zero.
uint quotient(uint64_t t) {
    return (LOW_LIMB_IS_ONE ? 0u - uint(t) : uint(t) * NEGATIVE_INVERSE) & LIMB_MASK;
}

// What that zero limb carries into the next one. With p[0] = 1 it is t / 2^LIMB_BITS rounded up.
uint64_t carry_of_low_limb(uint64_t t, uint m, uint p0) {
    uint64_t added = LOW_LIMB_IS_ONE ? uint64_t(LIMB_MASK) : wide(m, p0);
    return (t + added) >> LIMB_BITS;
}

// --- Column by column: t sums everything of equal weight, `above` what was too much for it. ---

void fold(inout uint64_t t, inout uint64_t above) {
    above += t >> LIMB_BITS;
    t &= LIMB_MASK;
}

// The products of limbs i and k - i, as many as there are.
void add_column(
    uint k, uint x[LIMBS], uint y[LIMBS], inout uint64_t t, inout uint64_t above
) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        if (i <= k && k - i < LIMBS) t += wide(x[i], y[k - i]);
        if (LIMBS >= ROOM && (i + 1) % (ROOM - 1) == 0) fold(t, above);
    }
}

// The same for y = x, where all but the one in the middle are equal in pairs: one of each, doubled.
void add_square_column(uint k, uint x[LIMBS], inout uint64_t t, inout uint64_t above) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        if (2 * i < k && k - i < LIMBS) t += wide(x[i], x[k - i] << (1 + SQUARE_ODD));
        if (2 * i == k) t += wide(x[i], x[i] << SQUARE_ODD);
        bool too_long = LIMBS * (1 + SQUARE_ODD) >= ROOM;
        if (too_long && (i + 1) % ((ROOM - 1) / (2 << SQUARE_ODD)) == 0) fold(t, above);
    }
}

// Adds the multiples of p that clear the lower half, and goes on to the next column: m collects
// their factors below, z the result above. Those of m that are not known yet are zero.
void end_column(
    uint k, uint p[LIMBS], inout uint m[LIMBS], inout uint z[LIMBS], inout uint64_t t,
    uint64_t above
) {
    add_column(k, m, p, t, above);
    if (k < LIMBS) {
        m[k] = quotient(t);
        t = carry_of_low_limb(t, m[k], p[0]) + above;
    } else {
        // The topmost limb keeps its carry: twice a modulus that fills its limbs has a bit more.
        bool topmost = k + 1 == 2 * LIMBS;
        z[k - LIMBS] = topmost ? uint(t + (above << LIMB_BITS)) : uint(t) & LIMB_MASK;
        t = (t >> LIMB_BITS) + above;
    }
}

void product_by_columns(uint x[LIMBS], uint y[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint m[LIMBS];
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) m[i] = z[i] = 0;
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        uint64_t above = 0;
        add_column(k, x, y, t, above);
        if (LIMBS * 2 >= ROOM) fold(t, above);
        end_column(k, p, m, z, t, above);
    }
}

// x^2 * 2^SQUARE_ODD / 2^(LIMBS * LIMB_BITS), below 2p: of an element that was unpacked with
// SQUARE_SHIFT, the Montgomery square.
void square(uint x[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint m[LIMBS];
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) m[i] = z[i] = 0;
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        uint64_t above = 0;
        add_square_column(k, x, t, above);
        if (LIMBS * (2 + SQUARE_ODD) >= ROOM) fold(t, above);
        end_column(k, p, m, z, t, above);
    }
}

// --- Row by row: each row adds x[i] * y and the multiple of p that clears the lowest limb. ---

// An accumulator takes 2 products of each row. After this many rows it might not take two more.
const uint ROWS_WITHOUT_CARRY = ROOM / 2 - 1u;

void product_by_rows(uint x[LIMBS], uint y[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint64_t t[LIMBS];
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[j] = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[j] += wide(x[i], y[j]);
        uint m = quotient(t[0]);
        uint64_t carry = carry_of_low_limb(t[0], m, p[0]);
        [[unroll]] for (uint j = 1; j < LIMBS; ++j) t[j] += wide(m, p[j]);
        [[unroll]] for (uint j = 0; j + 1 < LIMBS; ++j) t[j] = t[j + 1];
        t[LIMBS - 1] = 0;
        t[0] += carry;
        if ((i + 1) % ROWS_WITHOUT_CARRY == 0 && i + 1 < LIMBS) {
            [[unroll]] for (uint j = 0; j + 1 < LIMBS; ++j) {
                t[j + 1] += t[j] >> LIMB_BITS;
                t[j] &= LIMB_MASK;
            }
        }
    }
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
        if (j + 1 < LIMBS) t[j + 1] += t[j] >> LIMB_BITS;
        z[j] = j + 1 < LIMBS ? uint(t[j]) & LIMB_MASK : uint(t[j]);
    }
}

// x * y / 2^(LIMBS * LIMB_BITS), below 2p where x * y is below p * 2^(LIMBS * LIMB_BITS).
void product(uint x[LIMBS], uint y[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    if (BY_ROWS) product_by_rows(x, y, p, z);
    else product_by_columns(x, y, p, z);
}
