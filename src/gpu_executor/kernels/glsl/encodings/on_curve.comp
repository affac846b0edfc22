// The code of affine points: NOT_BELOW if a coordinate is not below p, OFF_CURVE unless
// y^2 = x^3 + a x + b, INFINITE for the point at infinity, else GOOD. `curve` are a and b.
//
// Coordinates have `degree` elements, 1 or 2: c0 + c1 u with u^2 = -1.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint degree;
#include "../element.glsl"
#include "point_codes.glsl"

ELEMENTS_IN(0, points)
ELEMENTS_IN(1, curve)
layout(set = 0, binding = 2, std430) writeonly buffer Codes { uint codes[]; };

void multiply(ELEMENT x0, ELEMENT x1, ELEMENT y0, ELEMENT y1, out ELEMENT z0, out ELEMENT z1) {
    ELEMENT one, two;
    f_mul(x0, y1, one);
    f_mul(x1, y0, two);
    f_add(one, two, two);
    f_mul(x0, y0, one);
    f_mul(x1, y1, z1);
    f_sub(one, z1, z0);
    f_copy(two, z1);
}

ELEMENTWISE(i) {
    ELEMENT x0, x1, y0, y1, left0, left1, s0, s1, t0, t1, c0, c1, p;
    f_zero(x1);
    f_zero(y1);
    load_points(2 * degree * i, x0);
    load_points(2 * degree * i + degree, y0);
    if (degree == 2) {
        load_points(4 * i + 1, x1);
        load_points(4 * i + 3, y1);
    }
    bool infinite = f_is_zero(x0) && f_is_zero(x1) && f_is_zero(y0) && f_is_zero(y1);
    modulus_words(p);
    bool below = below_words(x0, p) && below_words(x1, p) && below_words(y0, p) && below_words(y1, p);
    f_copy(y0, s0);
    f_copy(y1, s1);
    f_copy(y0, t0);
    f_copy(y1, t1);
    // y y, x x and (x^2 + a) x in a loop: one after the other they make a module for which lavapipe
    // takes 16 s.
    for (uint round = 0; round < 3; round++) {
        multiply(s0, s1, t0, t1, c0, c1);
        if (round == 0) {
            f_copy(c0, left0);
            f_copy(c1, left1);
            f_copy(x0, s0);
            f_copy(x1, s1);
            f_copy(x0, t0);
            f_copy(x1, t1);
        } else {
            uint at = (round - 1) * degree;
            load_curve(at, s0);
            f_zero(s1);
            if (degree == 2) load_curve(at + 1, s1);
            f_add(c0, s0, s0);
            f_add(c1, s1, s1);
        }
    }
    bool valid = f_equal(left0, s0) && f_equal(left1, s1);
    codes[i] = !below ? NOT_BELOW : infinite ? INFINITE : valid ? GOOD : OFF_CURVE;
}
