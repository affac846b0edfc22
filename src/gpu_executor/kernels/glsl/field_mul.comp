// result[i] = a[i] * b[i] / R mod p, the Montgomery product with R = 2^(32 * WORDS)
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"
#include "limbs.glsl"
#include "products.glsl"

ELEMENTWISE(i) {
    uint words[WORDS], p[LIMBS], a[LIMBS], b[LIMBS], shifted[LIMBS], lazy[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    load_a(i, words);
    words_to_limbs(words, 0, a);
    if (!below_limbs(a, p)) report(i, 0);
    load_b(i, words);
    words_to_limbs(words, 0, b);
    if (!below_limbs(b, p)) report(i, 1);
    words_to_limbs(words, SHIFT, shifted);
    mul_limbs(a, shifted, lazy);
    reduce_once(lazy, p, reduced);
    limbs_to_words(reduced, words);
    store_result(i, words);
}
