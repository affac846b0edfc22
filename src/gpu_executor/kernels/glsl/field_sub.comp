// out[i] = (a[i] - b[i]) mod p
#version 460
#extension GL_GOOGLE_include_directive : require
#include "field.glsl"
#include "words.glsl"

void main() {
    uint p[WORDS];
    load_modulus(p);
    uint i = first_element();
    for (uint k = 0; k < PER_INVOCATION; ++k, i += gl_WorkGroupSize.x) {
        if (i >= count) return;
        uint a[WORDS], b[WORDS], difference[WORDS], wrapped[WORDS], result[WORDS];
        load_a(i, a);
        load_b(i, b);
        check(a, p, i, 0);
        check(b, p, i, 1);
        uint borrow = sub(a, b, difference);
        add(difference, p, wrapped);
        choose(borrow == 0, difference, wrapped, result);
        store(i, result);
    }
}
