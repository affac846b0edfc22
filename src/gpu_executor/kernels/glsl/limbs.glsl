// Elements as limbs: conversion from and to words, comparison, reduction. Include words.glsl first.
//
// A short limb has LIMB_BITS = 28 to 30 bits in a 32-bit register, so a 64-bit accumulator can sum
// several products of limbs before a carry (products.glsl). With F64_LIMBS a limb has 52 bits,
// which fit the mantissa of a float64 (f64_limbs.glsl).

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

#include "spec_ids.glsl"

layout(constant_id = ID_LIMBS) const uint LIMBS = 13;

#ifdef F64_LIMBS
#define LIMB uint64_t
#define SIGNED_LIMB int64_t
const uint LIMB_BITS = 52;
#else
#define LIMB uint
#define SIGNED_LIMB int
layout(constant_id = ID_LIMB_BITS) const uint LIMB_BITS = 30;
#endif

const LIMB LIMB_MASK = (LIMB(1) << LIMB_BITS) - LIMB(1);

// A reduction of limbs divides by 2^(LIMBS * LIMB_BITS), but Montgomery form in memory has
// R = 2^(32 * WORDS). Shifting one operand left by the difference makes it a division by R.
const uint SHIFT = LIMBS * LIMB_BITS - 32 * WORDS;

#if defined(F64_LIMBS) && !defined(MODULUS_F64)
#define MODULUS_F64(i) modulus[i]
#endif

// The modulus, if the push constants hold its limbs.
void load_modulus_limbs(out LIMB p[LIMBS]) {
#ifdef F64_LIMBS
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        // The mantissa of the sum has the limb in its lowest bits.
        p[i] = doubleBitsToUint64(MODULUS_F64(i) + double(1ul << LIMB_BITS)) & LIMB_MASK;
    }
#else
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) p[i] = modulus[i];
#endif
}

uint word_at(uint x[WORDS], int word) {
    return word >= 0 && word < int(WORDS) ? x[max(word, 0)] : 0u;
}

// The limbs of x * 2^shift.
void words_to_limbs(uint x[WORDS], uint shift, out LIMB limbs[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        // Limb i begins at bit i * LIMB_BITS of x << shift. Bits outside x are zero.
        int bit = int(i * LIMB_BITS) - int(shift);
        int word = bit >> 5, offset = bit & 31;
        uint64_t pair = (uint64_t(word_at(x, word + 1)) << 32) | word_at(x, word);
        uint64_t bits = pair >> offset;
        if (offset + LIMB_BITS > 64) bits |= uint64_t(word_at(x, word + 2)) << (64 - offset);
        limbs[i] = LIMB(bits) & LIMB_MASK;
    }
}

void limbs_to_words(LIMB limbs[LIMBS], out uint x[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint limb = (32 * i) / LIMB_BITS;
        uint offset = (32 * i) % LIMB_BITS;
        uint64_t bits = uint64_t(limbs[limb]) >> offset;
        if (limb + 1 < LIMBS) bits |= uint64_t(limbs[limb + 1]) << (LIMB_BITS - offset);
        uint third = 2 * LIMB_BITS - offset;
        if (limb + 2 < LIMBS && third < 32) bits |= uint64_t(limbs[limb + 2]) << third;
        x[i] = uint(bits);
    }
}

// z = x - y; returns whether the difference is negative. The topmost limb of x may have one bit
// more than LIMB_BITS.
bool sub_limbs(LIMB x[LIMBS], LIMB y[LIMBS], out LIMB z[LIMBS]) {
    SIGNED_LIMB borrow = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        SIGNED_LIMB difference = SIGNED_LIMB(x[i]) - SIGNED_LIMB(y[i]) + borrow;
        z[i] = LIMB(difference) & LIMB_MASK;
        borrow = difference >> LIMB_BITS;
    }
    return borrow < 0;
}

bool below_limbs(LIMB x[LIMBS], LIMB y[LIMBS]) {
    LIMB unused[LIMBS];
    return sub_limbs(x, y, unused);
}

// x mod p for an x below 2p: one conditional subtraction.
void reduce_once(LIMB x[LIMBS], LIMB p[LIMBS], out LIMB z[LIMBS]) {
    LIMB reduced[LIMBS];
    bool below = sub_limbs(x, p, reduced);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = below ? x[i] : reduced[i];
}
