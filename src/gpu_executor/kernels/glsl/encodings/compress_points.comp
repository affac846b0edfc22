// The bytes of x of affine points, with flags in the most significant byte: those of a point whose y
// has no sign, of one whose y has the sign, or of infinity. With `larger` = 1, y has the sign if
// y > -y, else if y is odd.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH                                                                            \
    uint big_endian; uint larger; uint plain_flags; uint sign_flags; uint infinity_flags;
#include "../element.glsl"
#include "byte_order.glsl"

ELEMENTS_IN(0, points)
ELEMENTS_OUT(1, encoded)

ELEMENTWISE(i) {
    ELEMENT x, y, doubled, one;
    load_points(2 * i, x);
    load_points(2 * i + 1, y);
    bool infinite = f_is_zero(x) && f_is_zero(y);
    f_canonical_one(one);
    f_mul(x, one, x);
    // y > -y means 2 y > p, and then 2 y mod p is 2 y - p, which is odd.
    f_double(y, doubled);
    f_select(larger != 0, doubled, y, y);
    f_mul(y, one, y);
    uint flags = (y[0] & 1) != 0 ? sign_flags : plain_flags;
    x[WORDS - 1] |= (infinite ? infinity_flags : flags) << 24;
    reverse_bytes(x, y);
    f_select(big_endian != 0, y, x, x);
    store_encoded(i, x);
}
