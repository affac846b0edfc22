// y[i] = x[i] * g^e, e being i modulo 2^log_n: from the natural order into a coset and back. Where x
// is in bit-reversed order, e is reversed too.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint log_n; uint low_bits; uint reversed;
#include "../element.glsl"
#include "../work.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, low) // g^e = low[e mod 2^low_bits] * high[e >> low_bits]
ELEMENTS_IN(2, high)
ELEMENTS_OUT(3, y)

void main() {
    w_begin();
    EACH_ELEMENT(i) {
        uint e = i & ((1u << log_n) - 1u);
        if (reversed != 0) e = log_n == 0 ? 0 : bitfieldReverse(e) >> (32 - log_n);
        ELEMENT words;
        WORK x, factor, other, product;
        load_x(i, words);
        w_from(words, x);
        load_low(e & ((1u << low_bits) - 1u), words);
        w_from(words, factor);
        load_high(e >> low_bits, words);
        w_from(words, other);
        w_mul(factor, other, factor);
        w_mul(x, factor, product);
        w_to(product, words);
        store_y(i, words);
    }
}
