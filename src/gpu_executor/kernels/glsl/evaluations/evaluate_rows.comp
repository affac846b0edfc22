// Evaluates each row of coefficients at a point of its own, in steps: a value c of a row is the sum
// of coefficient[i * values + c] x^i, by Horner's rule. The polynomial that has a row's values as
// its coefficients takes the value of the whole row at the point y with y^values = x.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint terms; uint values;
#include "../element.glsl"

ELEMENTS_IN(0, coefficient)
ELEMENTS_IN(1, point)
ELEMENTS_OUT(2, value)

void main() {
    EACH_ELEMENT(t) {
        ELEMENT sum, x, next;
        uint row = t / values;
        uint first = row * terms * values + t % values;
        f_zero(sum);
        load_point(row, x);
        for (uint i = terms; i > 0; --i) {
            f_mul(sum, x, sum);
            load_coefficient(first + (i - 1) * values, next);
            f_add(sum, next, sum);
        }
        store_value(t, sum);
    }
}
