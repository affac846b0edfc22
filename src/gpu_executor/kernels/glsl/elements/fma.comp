// result[i] = a[i] * b[i] + c[i]
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint b_period; uint c_period;
#include "../element.glsl"
#include "../broadcast.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_IN(2, c)
ELEMENTS_OUT(3, result)

ELEMENTWISE(i) {
    ELEMENT a, b, c, product, sum;
    load_a(i, a);
    load_b(broadcast_index(i, b_period), b);
    load_c(broadcast_index(i, c_period), c);
    f_mul(a, b, product);
    f_add(product, c, sum);
    store_result(i, sum);
}
