// result[i] = -a[i]
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_OUT(1, result)

ELEMENTWISE(i) {
    ELEMENT a, negative;
    load_a(i, a);
    f_neg(a, negative);
    store_result(i, negative);
}
