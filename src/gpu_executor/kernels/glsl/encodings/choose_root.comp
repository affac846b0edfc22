// Affine points from x, from the right side of the curve's equation, and from its square root, if it
// has one: of y and -y the one that the flags ask for. Bit 0 of the flags says that y has the sign,
// bit 1 that the point is infinity. With `larger` = 1, y has the sign if y > -y, else if y is odd.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint larger;
#include "../element.glsl"
#include "point_codes.glsl"

ELEMENTS_IN(0, abscissas)
ELEMENTS_IN(1, right_sides)
ELEMENTS_IN(2, roots)
layout(set = 0, binding = 3, std430) readonly buffer Flags { uint flags[]; };
layout(set = 0, binding = 4, std430) readonly buffer Given { uint given[]; };
ELEMENTS_OUT(5, points)
layout(set = 0, binding = 6, std430) writeonly buffer Codes { uint codes[]; };

ELEMENTWISE(i) {
    ELEMENT x, y, right, other, one;
    load_abscissas(i, x);
    load_right_sides(i, right);
    load_roots(i, y);
    bool has_sign = (flags[i] & 1) != 0, infinite = (flags[i] & 2) != 0;
    f_square(y, other);
    uint code = given[i];
    if (code == GOOD && !f_equal(other, right)) code = NO_ROOT;
    if (code == GOOD && has_sign && f_is_zero(y)) code = SIGNED_ZERO;
    // y > -y means 2 y > p, and then 2 y mod p is 2 y - p, which is odd.
    f_double(y, other);
    f_select(larger != 0, other, y, other);
    f_canonical_one(one);
    f_mul(other, one, other);
    f_neg(y, right);
    f_select((other[0] & 1) != uint(has_sign), right, y, y);
    if (infinite) {
        f_zero(x);
        f_zero(y);
        code = GOOD;
    }
    store_points(2 * i, x);
    store_points(2 * i + 1, y);
    codes[i] = code;
}
