// elements[i] = the number with the bytes encoded[i], in Montgomery form. The status word is lowered
// to the index of the first number that is not below p.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define CHECKED
#define ARGUMENTS 1
#define KERNEL_PUSH uint big_endian;
#include "../element.glsl"
#include "byte_order.glsl"

ELEMENTS_IN(0, encoded)
ELEMENTS_OUT(1, elements)

ELEMENTWISE(i) {
    ELEMENT given, number, r_squared, converted;
    load_encoded(i, given);
    reverse_bytes(given, number);
    f_select(big_endian != 0, number, given, number);
    CHECK(number, i, 0);
    f_r_squared(r_squared);
    f_mul(number, r_squared, converted);
    store_elements(i, converted);
}
