// result[i] = a[i]^e with one exponent e for all elements: `exponent_words` 32-bit words, the least
// significant first. 0^0 is 1.
//
// Left-to-right square and multiply. Two adjacent set bits are processed together by multiplying
// with a^3: an exponent of n bits takes n - 1 squares and at most about n / 2 products, where one
// product per set bit would take up to n. The exponent is uniform, so branches on it do not
// diverge. The squares before a product are counted first, a run of zero bits at a time, and then
// computed in a loop without conditions. Unrolling that loop does not help: on an NVIDIA H200, 2^22
// powers p - 2 of Goldilocks take 0.486 ms, and 0.518 ms with four squares at a time.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define LIMB_FORM
#define ONLY_PRODUCTS
#define KERNEL_PUSH uint exponent_words;
#include "../element.glsl"
#include "../limb_form.glsl"

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

    ELEMENT element;
    if (bits == 0) {
        f_one(element);
        store_result(i, element);
        return;
    }
    NUMBER a, cube, power;
    load_a(i, element);
    n_from_element(element, a);
    n_copy(a, cube);
    n_copy(a, power);
    uint at = bits - 1; // the bits that are left: the topmost one needs no operation
    // With pairs, a^3 is computed first, in the same loop, so that the code contains square and
    // product only once.
    bool making_cube = with_pairs;
    uint squares = uint(making_cube);
    for (;;) {
        bool multiplies = making_cube, pair = false;
        if (!making_cube && at > 0) {
            uint bit = (at - 1) % 32;
            uint word = exponent[(at - 1) / 32] << (31 - bit); // the next bit is the topmost one
            if (word == 0) {
                squares += bit + 1;
                at -= bit + 1;
                continue;
            }
            uint zeros = 31 - uint(findMSB(word));
            // Only pairs within one word count, which costs at most one product per word.
            pair = with_pairs && (word << zeros & 1u << 30) != 0;
            uint passed = zeros + (pair ? 2 : 1);
            squares += passed;
            at -= passed;
            multiplies = true;
        }
        for (; squares > 0; --squares) n_square(power, power);
        if (!multiplies) break;
        NUMBER factor;
        n_select(pair, cube, a, factor);
        n_mul(power, factor, power);
        if (making_cube) {
            making_cube = false;
            n_copy(power, cube);
            // a^3 is the power of the topmost two bits, if both are set.
            if (at > 0 && (exponent[(at - 1) / 32] >> (at - 1) % 32 & 1) != 0) --at;
            else n_copy(a, power);
        }
    }
    n_to_element(power, element);
    store_result(i, element);
}
