// Elements of any odd prime up to 768 bits: WORDS packed 32-bit words in Montgomery form with
// R = 2^(32 * WORDS). Sums are made on words, products on short limbs.

#define ELEMENT uint[WORDS]

#include "../push.glsl"
#include "../words.glsl"
#include "../words_memory.glsl"

#ifdef PRODUCTS
#include "../limbs.glsl"
#ifdef DOUBLES
#include "../doubles.glsl"
#else
#include "../products.glsl"
#endif
#include "wide_constants.glsl"

// A product reads the limbs where they are pushed. To pack them for a sum is work that is the same
// for all invocations.
void modulus_words(out uint p[WORDS]) {
    LIMB limbs[LIMBS];
    load_modulus_limbs(limbs);
    pack(limbs, p);
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

void f_choose(bool first, ELEMENT x, ELEMENT y, out ELEMENT z) {
    choose_words(first, x, y, z);
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
    LIMB p[LIMBS], a[LIMBS], b[LIMBS], loose[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    unpack(x, 0, a);
    unpack(y, SHIFT, b);
    product(a, b, loose);
    reduce_once(loose, p, reduced);
    pack(reduced, z);
}

// In chains on an NVIDIA H200, in G/s, and by f_mul(x, x, z): 52.4 and 43.0 at 255 bits, 24.7 and 19.9
// at 381; with doubles 55.0 and 47.5, 26.1 and 22.2.
void f_square(ELEMENT x, out ELEMENT z) {
    LIMB p[LIMBS], a[LIMBS], loose[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    unpack(x, SQUARE_SHIFT, a);
    square(a, loose);
    reduce_once(loose, p, reduced);
    pack(reduced, z);
}
#endif
