// result[i] = a[i] * R: from canonical form to Montgomery form
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_OUT(1, result)

ELEMENTWISE(i) {
    ELEMENT a, r_squared, converted;
    load_a(i, a);
    f_r_squared(r_squared);
    f_mul(a, r_squared, converted);
    store_result(i, converted);
}
