// result[i] = a[i] * b[i] / R mod p, the Montgomery product with R = 2^(32 * WORDS)
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"
#include "limbs.glsl"
#include "products.glsl"

ELEMENTWISE(i) {
    uint words[WORDS], p[LIMBS], a[LIMBS], b[LIMBS], shifted[LIMBS], loose[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    load_a(i, words);
    unpack(words, 0, a);
    if (!below_limbs(a, p)) report(i, 0);
    load_b(i, words);
    unpack(words, 0, b);
    if (!below_limbs(b, p)) report(i, 1);
    unpack(words, SHIFT, shifted);
    product(a, shifted, loose);
    reduce_once(loose, p, reduced);
    pack(reduced, words);
    store_result(i, words);
}
