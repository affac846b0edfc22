// result[i] = a[i]^e, the same e for all: `exponent_words` 32-bit words, the least significant
// first. Also of zero the 0th power is 1.
//
// Left to right by squares, two bits at once where both are set: that takes a^3, and at most one
// product for two squares instead of one for each. The exponent is the same for all invocations, so
// no branch on it parts them.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint exponent_words;
#include "../element.glsl"

ELEMENTS_IN(0, a)
layout(set = 0, binding = 1, std430) readonly buffer Exponent { uint exponent[]; };
ELEMENTS_OUT(2, result)

// a^3 costs two products. At least every other place where neighbouring bits are set saves one.
const uint ENOUGH_PAIRS = 4;

ELEMENTWISE(i) {
    uint bits = 0, pairs = 0;
    for (uint k = 0; k < exponent_words; ++k) {
        uint word = exponent[k];
        if (word != 0) bits = 32 * k + uint(findMSB(word)) + 1;
        pairs += bitCount(word & word >> 1);
    }
    bool by_pairs = pairs > ENOUGH_PAIRS;

    ELEMENT a, cube, power;
    load_a(i, a);
    f_copy(a, cube);
    f_copy(a, power);
    if (bits == 0) f_one(power);
    // The topmost bit needs nothing done. By pairs, its turn is the one in which a^3 is made, so
    // that square and product are in the code once.
    uint turns = by_pairs ? bits : max(bits, 1) - 1;
    uint word = exponent[(max(turns, 1) - 1) / 32];
    bool paired = false;
    for (uint at = turns; at > 0; --at) {
        if (at % 32 == 0) word = exponent[at / 32 - 1];
        uint bit = (at - 1) % 32;
        bool making_cube = at == bits;
        bool set = (word >> bit & 1) != 0;
        // A pair lies in one word, which costs a product a word at most.
        bool next_set = by_pairs && bit > 0 && (word >> (bit - 1) & 1) != 0;
        bool multiplies = making_cube || paired || (set && !next_set);
        f_square(power, power);
        if (multiplies) {
            ELEMENT factor;
            f_choose(paired, cube, a, factor);
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
