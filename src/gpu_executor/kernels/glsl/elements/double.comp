// result[i] = 2 * a[i]
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_OUT(1, result)

ELEMENTWISE(i) {
    ELEMENT a, twice;
    load_a(i, a);
    f_double(a, twice);
    store_result(i, twice);
}
