// result[i] = a[i]^e with one exponent e for all elements: `exponent_words` 32-bit words, the least
// significant first. 0^0 is 1.
//
// Left-to-right square and multiply. Two adjacent set bits are processed together by multiplying
// with a^3: an exponent of n bits takes n - 1 squares and at most about n / 2 products, where one
// product per set bit would take up to n. The exponent is uniform, so branches on it do not
// diverge.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint exponent_words;
#include "../element.glsl"

ELEMENTS_IN(0, a)
layout(set = 0, binding = 1, std430) readonly buffer Exponent { uint exponent[]; };
ELEMENTS_OUT(2, result)

// Computing a^3 costs two products. At least every other pair of adjacent set bits saves one
// product, so more than 4 pairs pay for it.
const uint MIN_PAIRS = 4;

ELEMENTWISE(i) {
    uint bits = 0, pairs = 0;
    for (uint k = 0; k < exponent_words; ++k) {
        uint word = exponent[k];
        if (word != 0) bits = 32 * k + uint(findMSB(word)) + 1;
        pairs += bitCount(word & word >> 1);
    }
    bool with_pairs = pairs > MIN_PAIRS;

    ELEMENT a, cube, power;
    load_a(i, a);
    f_copy(a, cube);
    f_copy(a, power);
    if (bits == 0) f_one(power);
    // The topmost bit needs no operation. With pairs, its iteration computes a^3 instead, so that
    // the code contains square and product only once.
    uint steps = with_pairs ? bits : max(bits, 1) - 1;
    uint word = exponent[(max(steps, 1) - 1) / 32];
    bool paired = false;
    for (uint at = steps; at > 0; --at) {
        if (at % 32 == 0) word = exponent[at / 32 - 1];
        uint bit = (at - 1) % 32;
        bool making_cube = at == bits;
        bool set = (word >> bit & 1) != 0;
        // Only pairs within one word count, which costs at most one product per word.
        bool next_set = with_pairs && bit > 0 && (word >> (bit - 1) & 1) != 0;
        bool multiplies = making_cube || paired || (set && !next_set);
        f_square(power, power);
        if (multiplies) {
            ELEMENT factor;
            f_select(paired, cube, a, factor);
            f_mul(power, factor, power);
        }
        paired = !multiplies && set;
        if (making_cube) {
            f_copy(power, cube);
            if (next_set) --at;
            else f_copy(a, power);
        }
    }
    store_result(i, power);
}
