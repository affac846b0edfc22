// copy[i] = given[i]. The status word is lowered to the index of the first element that is not below
// p.
#version 460
#extension GL_GOOGLE_include_directive : require
#define CHECKED
#define ARGUMENTS 1
#include "../element.glsl"

ELEMENTS_IN(0, given)
ELEMENTS_OUT(1, copy)

ELEMENTWISE(i) {
    ELEMENT x;
    load_given(i, x);
    CHECK(x, i, 0);
    store_copy(i, x);
}
