// result[i] = a[i] + b[i]
#version 460
#extension GL_GOOGLE_include_directive : require
#define ARGUMENTS 2
#define KERNEL_PUSH uint b_period;
#include "../element.glsl"
#include "../broadcast.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_OUT(2, result)

ELEMENTWISE(i) {
    ELEMENT a, b, sum;
    load_a(i, a);
    load_b(broadcast_index(i, b_period), b);
    CHECK(a, i, 0);
    CHECK(b, i, 1);
    f_add(a, b, sum);
    store_result(i, sum);
}
