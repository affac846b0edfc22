// result[i] = a[i] * b[i]; in Montgomery form the product is a[i] * b[i] / R
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define ARGUMENTS 2
#define KERNEL_PUSH uint b_period;
#include "../element.glsl"
#include "../broadcast.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_OUT(2, result)

ELEMENTWISE(i) {
    ELEMENT a, b, product;
    load_a(i, a);
    CHECK(a, i, 0);
    load_b(broadcast_index(i, b_period), b);
    CHECK(b, i, 1);
    f_mul(a, b, product);
    store_result(i, product);
}
