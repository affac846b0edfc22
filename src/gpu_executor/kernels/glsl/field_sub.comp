// result[i] = (a[i] - b[i]) mod p
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"

ELEMENTWISE(i) {
    uint p[WORDS], a[WORDS], b[WORDS], difference[WORDS];
    load_modulus_words(p);
    load_a(i, a);
    load_b(i, b);
    if (!below_words(a, p)) report(i, 0);
    if (!below_words(b, p)) report(i, 1);
    sub_modulo(a, b, p, difference);
    store_result(i, difference);
}
