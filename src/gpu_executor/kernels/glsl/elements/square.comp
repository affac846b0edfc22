// result[i] = a[i]^2
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_OUT(1, result)

ELEMENTWISE(i) {
    ELEMENT a, square;
    load_a(i, a);
    f_square(a, square);
    store_result(i, square);
}
