// The Montgomery product and square on short limbs. Include limbs.glsl first.
//
// Each product of two limbs is one wide multiply-add, and carries wait. On an NVIDIA H200 that is
// 22.3 G products/s at 381 bits where full 32-bit limbs give 16.6.
//
// All loops have constant bounds, with conditions inside where a sum is shorter: some drivers
// unroll no loop whose length depends on another one.

layout(constant_id = 5) const uint NEGATIVE_INVERSE = 0; // -1/p mod 2^LIMB_BITS

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

// Column by column: t sums everything of equal weight, `above` what was too much for it.

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

// x * y / 2^(LIMBS * LIMB_BITS), below 2p where x * y is below p * 2^(LIMBS * LIMB_BITS).
void product(uint x[LIMBS], uint y[LIMBS], out uint z[LIMBS]) {
    uint p[LIMBS], m[LIMBS];
    load_modulus_limbs(p);
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
void square(uint x[LIMBS], out uint z[LIMBS]) {
    uint p[LIMBS], m[LIMBS];
    load_modulus_limbs(p);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) m[i] = z[i] = 0;
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        uint64_t above = 0;
        add_square_column(k, x, t, above);
        if (LIMBS * (2 + SQUARE_ODD) >= ROOM) fold(t, above);
        end_column(k, p, m, z, t, above);
    }
}
