// The code OUTSIDE unless (x_factor x, y_factor y) is the given multiple of the affine point (x, y),
// in XYZZ form. `factors` are x_factor and y_factor. The point at infinity has the code GOOD.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#include "../element.glsl"
#include "point_codes.glsl"

ELEMENTS_IN(0, points)
ELEMENTS_IN(1, multiples)
ELEMENTS_IN(2, factors)
layout(set = 0, binding = 3, std430) writeonly buffer Codes { uint codes[]; };

ELEMENTWISE(i) {
    ELEMENT x, y, factor, denominator, coordinate;
    load_points(2 * i, x);
    load_points(2 * i + 1, y);
    bool infinite = f_is_zero(x) && f_is_zero(y), same = true;
    load_factors(0, factor);
    f_mul(x, factor, x);
    load_factors(1, factor);
    f_mul(y, factor, y);
    load_multiples(4 * i + 2, denominator);
    same = same && !f_is_zero(denominator);
    f_mul(x, denominator, x);
    load_multiples(4 * i, coordinate);
    same = same && f_equal(x, coordinate);
    load_multiples(4 * i + 3, denominator);
    f_mul(y, denominator, y);
    load_multiples(4 * i + 1, coordinate);
    same = same && f_equal(y, coordinate);
    codes[i] = infinite || same ? GOOD : OUTSIDE;
}
