// result[i] = a[i] * (b[i] / R)^CHAIN_LENGTH mod p, for primes below R/2: CHAIN_LENGTH
// dependent products without memory access between them. It measures the multiplier alone, and it
// always checks its elements.
#version 460
#extension GL_GOOGLE_include_directive : require
#define CHECKED
#define ARGUMENTS 2
#define PRODUCTS
#include "../element.glsl"
#include "../spec_ids.glsl"

layout(constant_id = ID_CHAIN_LENGTH) const uint CHAIN_LENGTH = 64; // even

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_OUT(2, result)

void main() {
    uint i = first_element();
    if (i >= count) return;
    uint words[WORDS];
    LIMB p[LIMBS], x[LIMBS], b[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    load_b(i, words);
    CHECK(words, i, 1);
    words_to_limbs(words, SHIFT, b);
    load_a(i, words);
    CHECK(words, i, 0);
    words_to_limbs(words, 0, x);
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
