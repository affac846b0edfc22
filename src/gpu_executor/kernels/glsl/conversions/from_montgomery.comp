// result[i] = a[i] / R: from Montgomery form to canonical form
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_OUT(1, result)

ELEMENTWISE(i) {
    ELEMENT a, one, converted;
    load_a(i, a);
    f_canonical_one(one);
    f_mul(a, one, converted);
    store_result(i, converted);
}
