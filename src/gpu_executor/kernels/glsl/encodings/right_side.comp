// From the bytes of x: x and x^3 + a x + b in Montgomery form, and the code 0, or NOT_BELOW for a
// number that is not below p. `curve` are the elements a and b.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint big_endian;
#include "../element.glsl"
#include "byte_order.glsl"
#include "point_codes.glsl"

ELEMENTS_IN(0, encoded)
ELEMENTS_IN(1, curve)
ELEMENTS_OUT(2, abscissas)
ELEMENTS_OUT(3, right_sides)
layout(set = 0, binding = 4, std430) writeonly buffer Codes { uint codes[]; };

ELEMENTWISE(i) {
    ELEMENT given, number, p, r_squared, x, a, b, sum;
    load_encoded(i, given);
    reverse_bytes(given, number);
    f_select(big_endian != 0, number, given, number);
    modulus_words(p);
    codes[i] = below_words(number, p) ? GOOD : NOT_BELOW;
    f_r_squared(r_squared);
    f_mul(number, r_squared, x);
    load_curve(0, a);
    load_curve(1, b);
    f_square(x, sum);
    f_add(sum, a, sum);
    f_mul(sum, x, sum);
    f_add(sum, b, sum);
    store_abscissas(i, x);
    store_right_sides(i, sum);
}
