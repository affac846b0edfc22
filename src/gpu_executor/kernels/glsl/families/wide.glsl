// Elements modulo any odd prime up to 768 bits: WORDS 32-bit words in Montgomery form with
// R = 2^(32 * WORDS). Sums are computed on words, products on limbs.

#define ELEMENT uint[WORDS]

#include "../push.glsl"
#include "../words.glsl"
#include "../words_memory.glsl"

#ifdef PRODUCTS
#include "../limbs.glsl"
#ifdef F64_LIMBS
#include "../f64_limbs.glsl"
#else
#include "../products.glsl"
#endif
#include "wide_constants.glsl"

// The push constants hold the limbs, which products read directly. Converting them to words for a
// sum is uniform: the same for all invocations.
void modulus_words(out uint p[WORDS]) {
    LIMB limbs[LIMBS];
    load_modulus_limbs(limbs);
    limbs_to_words(limbs, p);
}
#else
void modulus_words(out uint p[WORDS]) {
    load_modulus_words(p);
}
#endif

void f_zero(out ELEMENT z) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = 0;
}

void f_copy(ELEMENT x, out ELEMENT z) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = x[i];
}

void f_select(bool condition, ELEMENT x, ELEMENT y, out ELEMENT z) {
    select_words(condition, x, y, z);
}

bool f_is_zero(ELEMENT x) {
    uint any = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) any |= x[i];
    return any == 0;
}

bool f_equal(ELEMENT x, ELEMENT y) {
    uint any = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) any |= x[i] ^ y[i];
    return any == 0;
}

#ifdef CHECKED
bool f_below_modulus(ELEMENT x) {
#ifdef PRODUCTS
    // A product needs the same limbs of x.
    LIMB p[LIMBS], limbs[LIMBS];
    load_modulus_limbs(p);
    words_to_limbs(x, 0, limbs);
    return below_limbs(limbs, p);
#else
    uint p[WORDS];
    load_modulus_words(p);
    return below_words(x, p);
#endif
}
#endif

void f_add(ELEMENT x, ELEMENT y, out ELEMENT z) {
    uint p[WORDS];
    modulus_words(p);
    add_modulo(x, y, p, z);
}

void f_sub(ELEMENT x, ELEMENT y, out ELEMENT z) {
    uint p[WORDS];
    modulus_words(p);
    sub_modulo(x, y, p, z);
}

void f_neg(ELEMENT x, out ELEMENT z) {
    uint zero[WORDS];
    f_zero(zero);
    f_sub(zero, x, z);
}

#ifdef PRODUCTS
void f_mul(ELEMENT x, ELEMENT y, out ELEMENT z) {
    LIMB p[LIMBS], a[LIMBS], b[LIMBS], lazy[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    words_to_limbs(x, 0, a);
    words_to_limbs(y, SHIFT, b);
    mul_limbs(a, b, lazy);
    reduce_once(lazy, p, reduced);
    limbs_to_words(reduced, z);
}

#ifndef LIMB_FORM
// G squares/s on an NVIDIA H200 in chains with conversions between the squares: 52.4 at 255 bits
// (43.0 with f_mul(x, x, z) instead) and 24.7 at 381 bits (19.9); with f64 limbs, 55.0 at 255 bits
// (47.5) and 26.1 at 381 bits (22.2). Without conversions: families/wide_limb_form.glsl.
void f_square(ELEMENT x, out ELEMENT z) {
    LIMB p[LIMBS], a[LIMBS], lazy[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    words_to_limbs(x, SQUARE_SHIFT, a);
    square_limbs(a, lazy);
    reduce_once(lazy, p, reduced);
    limbs_to_words(reduced, z);
}
#endif
#endif
