// y[i] = x[i] * g^e with e = i mod 2^log_n: from a subgroup to its coset and back. If x is in
// bit-reversed order, e is bit-reversed too.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint log_n; uint low_bits; uint reversed;
#include "../element.glsl"
#include "../lazy.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, low) // g^e = low[e mod 2^low_bits] * high[e >> low_bits]
ELEMENTS_IN(2, high)
ELEMENTS_OUT(3, y)

void main() {
    lazy_begin();
    EACH_ELEMENT(i) {
        uint e = i & ((1u << log_n) - 1u);
        if (reversed != 0) e = log_n == 0 ? 0 : bitfieldReverse(e) >> (32 - log_n);
        ELEMENT words;
        LAZY x, factor, other, product;
        load_x(i, words);
        lazy_from_element(words, x);
        load_low(e & ((1u << low_bits) - 1u), words);
        lazy_from_element(words, factor);
        load_high(e >> low_bits, words);
        lazy_from_element(words, other);
        lazy_mul(factor, other, factor);
        lazy_mul(x, factor, product);
        lazy_to_element(product, words);
        store_y(i, words);
    }
}
