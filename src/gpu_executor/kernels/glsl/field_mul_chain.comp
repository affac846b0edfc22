// result[i] = a[i] * (b[i] / R)^LENGTH mod p, for primes below R/2: LENGTH dependent products
// without memory between them, which measures the multiplier alone.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"
#include "limbs.glsl"
#ifdef DOUBLES
#include "doubles.glsl"
#else
#include "products.glsl"
#endif

layout(constant_id = 6) const uint LENGTH = 64; // even

void main() {
    uint i = first_element();
    if (i >= count) return;
    uint words[WORDS];
    LIMB p[LIMBS], x[LIMBS], b[LIMBS], reduced[LIMBS];
    load_modulus_limbs(p);
    load_b(i, words);
    unpack(words, 0, b);
    if (!below_limbs(b, p)) report(i, 1);
    unpack(words, SHIFT, b);
    load_a(i, words);
    unpack(words, 0, x);
    if (!below_limbs(x, p)) report(i, 0);
    // With p < R/2 a factor below 2p gives a product below 2p again: one reduction at the end will
    // do.
    for (uint k = 0; k < LENGTH / 2; ++k) {
        LIMB next[LIMBS];
        product(x, b, next);
        product(next, b, x);
    }
    reduce_once(x, p, reduced);
    pack(reduced, words);
    store_result(i, words);
}
