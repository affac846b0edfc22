// result[i] = 1 / a[i], and 0 for 0. The words of a are a R, and those of its inverse R / a: 1 / (a R)
// times R^2.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#include "../element.glsl"
#include "../inverse.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_OUT(1, result)

ELEMENTWISE(i) {
    ELEMENT element, r_squared;
    uint limbs[LIMBS];
    load_a(i, element);
    words_to_limbs(element, 0, limbs);
    invert_limbs(limbs, limbs);
    limbs_to_words(limbs, element);
    f_r_squared(r_squared);
    [[dont_unroll]] for (uint k = 0; k < 2; ++k) f_mul(element, r_squared, element);
    store_result(i, element);
}
