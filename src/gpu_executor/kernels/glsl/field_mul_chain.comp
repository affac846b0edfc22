// result[i] = a[i] * (b[i] / R)^CHAIN_LENGTH mod p, for primes below R/2: CHAIN_LENGTH
// dependent products without memory access between them. It measures the multiplier alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"
#include "limbs.glsl"
#ifdef F64_LIMBS
#include "f64_limbs.glsl"
#else
#include "products.glsl"
#endif

layout(constant_id = ID_CHAIN_LENGTH) const uint CHAIN_LENGTH = 64; // even

void main() {
    uint i = first_element();
    if (i >= count) return;
    uint words[WORDS];
    LIMB p[LIMBS], x[LIMBS], b[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    load_b(i, words);
    words_to_limbs(words, 0, b);
    if (!below_limbs(b, p)) report(i, 1);
    words_to_limbs(words, SHIFT, b);
    load_a(i, words);
    words_to_limbs(words, 0, x);
    if (!below_limbs(x, p)) report(i, 0);
    // Lazy reduction: with p < R/2 and one factor below 2p the product is below 2p again, so one
    // reduction at the end suffices.
    for (uint k = 0; k < CHAIN_LENGTH / 2; ++k) {
        LIMB next[LIMBS];
        mul_limbs(x, b, next);
        mul_limbs(next, b, x);
    }
    reduce_once(x, p, reduced);
    limbs_to_words(reduced, words);
    store_result(i, words);
}
