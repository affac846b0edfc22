// The bytes of elements in canonical form. Rows of `columns` elements are written to rows of
// `stride` numbers, from number `first` of each row on.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint big_endian; uint montgomery; uint columns; uint stride; uint first;
#include "../element.glsl"
#include "byte_order.glsl"

ELEMENTS_IN(0, elements)
ELEMENTS_OUT(1, encoded)

ELEMENTWISE(i) {
    ELEMENT x, one, reversed;
    load_elements(i, x);
    if (montgomery != 0) {
        f_canonical_one(one);
        f_mul(x, one, x);
    }
    reverse_bytes(x, reversed);
    f_select(big_endian != 0, reversed, x, x);
    store_encoded(i / columns * stride + i % columns + first, x);
}
