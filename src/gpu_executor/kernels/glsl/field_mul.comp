// out[i] = a[i] * b[i] / R mod p, the Montgomery product with R = 2^(32 * WORDS)
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"
#include "limbs.glsl"

void main() {
    uint p[LIMBS];
    load_modulus(p);
    uint i = first_element();
    for (uint k = 0; k < PER_INVOCATION; ++k, i += gl_WorkGroupSize.x) {
        if (i >= count) return;
        uint words[WORDS], a[LIMBS], b[LIMBS], shifted[LIMBS], loose[LIMBS], result[LIMBS];
        load_a(i, words);
        unpack(words, 0, a);
        check(a, p, i, 0);
        load_b(i, words);
        unpack(words, 0, b);
        check(b, p, i, 1);
        unpack(words, SHIFT, shifted);
        product(a, shifted, p, loose);
        reduce_once(loose, p, result);
        pack(result, words);
        store(i, words);
    }
}
