// The Montgomery product on short limbs, the modulus as limbs. Include field.glsl first.
//
// A limb has LIMB_BITS = 28 to 30 bits in a 32-bit register, so the product of two leaves room in a
// 64-bit accumulator for several more: each product is one wide multiply-add and carries wait. On an
// NVIDIA H200 that is 23.9 G products/s at 381 bits where full 32-bit limbs give 16.6.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

layout(constant_id = 3) const uint LIMBS = 13;
layout(constant_id = 4) const uint LIMB_BITS = 30;
layout(constant_id = 5) const uint NEGATIVE_INVERSE = 0; // -1/p mod 2^LIMB_BITS

const uint LIMB_MASK = (1u << LIMB_BITS) - 1u;

// Limbs reduce by 2^(LIMBS * LIMB_BITS), memory has R = 2^(32 * WORDS). Shifting one operand left by
// the difference while it is unpacked gives R back.
const uint SHIFT = LIMBS * LIMB_BITS - 32 * WORDS;

// p = 1 mod 2^LIMB_BITS, as scalar fields with large powers of two in p - 1 have it. Clearing the
// lowest limb then takes no multiplication: 50.0 instead of 47.0 G products/s at 255 bits (H200).
const bool LOW_LIMB_IS_ONE = NEGATIVE_INVERSE == LIMB_MASK;

// An accumulator takes 2 products of each row. After this many rows it might not take two more.
const uint ROWS_WITHOUT_CARRY = (1u << (63 - 2 * LIMB_BITS)) - 1u;

void unpack(uint x[WORDS], uint shift, out uint limbs[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        // Limb i begins at bit i * LIMB_BITS of x << shift; what lies outside x is zero.
        int bit = int(i * LIMB_BITS) - int(shift);
        int word = bit >> 5;
        uint low = (word >= 0 && word < int(WORDS)) ? x[max(word, 0)] : 0u;
        uint high = (word + 1 >= 0 && word + 1 < int(WORDS)) ? x[max(word + 1, 0)] : 0u;
        uint64_t pair = (uint64_t(high) << 32) | low;
        limbs[i] = uint(pair >> (bit & 31)) & LIMB_MASK;
    }
}

void pack(uint limbs[LIMBS], out uint x[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint limb = (32 * i) / LIMB_BITS;
        uint offset = (32 * i) % LIMB_BITS;
        uint64_t bits = uint64_t(limbs[limb]) >> offset;
        if (limb + 1 < LIMBS) bits |= uint64_t(limbs[limb + 1]) << (LIMB_BITS - offset);
        if (limb + 2 < LIMBS) bits |= uint64_t(limbs[limb + 2]) << (2 * LIMB_BITS - offset);
        x[i] = uint(bits);
    }
}

void load_modulus(out uint p[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) p[i] = modulus[i];
}

// x - y over limbs, limb by limb as signed numbers; returns whether it came out negative.
bool sub(uint x[LIMBS], uint y[LIMBS], out uint z[LIMBS]) {
    int borrow = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int difference = int(x[i]) - int(y[i]) + borrow;
        z[i] = uint(difference) & LIMB_MASK;
        borrow = difference >> LIMB_BITS;
    }
    return borrow < 0;
}

void check(uint x[LIMBS], uint p[LIMBS], uint element, uint argument) {
    uint unused[LIMBS];
    if (!sub(x, p, unused)) report(element, argument);
}

// m, such that t + m * p has a lowest limb of zero.
uint quotient(uint64_t t) {
    return (LOW_LIMB_IS_ONE ? 0u - uint(t) : uint(t) * NEGATIVE_INVERSE) & LIMB_MASK;
}

// What that zero limb carries into the next one. With p[0] = 1 it is t / 2^LIMB_BITS rounded up.
uint64_t carry_of_low_limb(uint64_t t, uint m, uint p0) {
    uint64_t added = LOW_LIMB_IS_ONE ? uint64_t(LIMB_MASK) : uint64_t(m) * uint64_t(p0);
    return (t + added) >> LIMB_BITS;
}

// Row by row: each row adds x[i] * y and the multiple of p that clears the lowest limb.
void product_by_rows(uint x[LIMBS], uint y[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint64_t t[LIMBS];
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[j] = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[j] += uint64_t(x[i]) * uint64_t(y[j]);
        uint m = quotient(t[0]);
        uint64_t carry = carry_of_low_limb(t[0], m, p[0]);
        [[unroll]] for (uint j = 1; j < LIMBS; ++j) t[j] += uint64_t(m) * uint64_t(p[j]);
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
        z[j] = uint(t[j]) & LIMB_MASK;
    }
}

// Column by column: one accumulator sums everything of equal weight.
void product_by_columns(uint x[LIMBS], uint y[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint m[LIMBS];
    uint64_t t = 0;
    [[unroll]] for (uint k = 0; k < LIMBS; ++k) {
        [[unroll]] for (uint i = 0; i < k; ++i) t += uint64_t(m[i]) * uint64_t(p[k - i]);
        [[unroll]] for (uint i = 0; i <= k; ++i) t += uint64_t(x[i]) * uint64_t(y[k - i]);
        m[k] = quotient(t);
        t = carry_of_low_limb(t, m[k], p[0]);
    }
    [[unroll]] for (uint k = LIMBS; k < 2 * LIMBS; ++k) {
        uint first = k - LIMBS + 1;
        [[unroll]] for (uint i = first; i < LIMBS; ++i) t += uint64_t(x[i]) * uint64_t(y[k - i]);
        [[unroll]] for (uint i = first; i < LIMBS; ++i) t += uint64_t(m[i]) * uint64_t(p[k - i]);
        z[k - LIMBS] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// x * y / 2^(LIMBS * LIMB_BITS), below 2p where x * y is below p * 2^(LIMBS * LIMB_BITS).
void product(uint x[LIMBS], uint y[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    // A column holds 2 * LIMBS products; where 64 bits take them all, columns are faster.
    if (LIMBS * 2 < (1u << (64 - 2 * LIMB_BITS))) product_by_columns(x, y, p, z);
    else product_by_rows(x, y, p, z);
}

void reduce_once(uint x[LIMBS], uint p[LIMBS], out uint z[LIMBS]) {
    uint reduced[LIMBS];
    bool below = sub(x, p, reduced);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = below ? x[i] : reduced[i];
}
