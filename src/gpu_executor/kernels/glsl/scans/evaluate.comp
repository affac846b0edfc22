// Evaluates a polynomial at many points by Horner's rule, one invocation per point: one product and
// one sum per coefficient.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint coefficients;
#include "../element.glsl"

ELEMENTS_IN(0, coefficient)
ELEMENTS_IN(1, point)
ELEMENTS_OUT(2, value)

void main() {
    EACH_ELEMENT(t) {
        ELEMENT value, point, next;
        f_zero(value);
        load_point(t, point);
        for (uint i = coefficients; i > 0; --i) {
            f_mul(value, point, value);
            load_coefficient(i - 1, next);
            f_add(value, next, value);
        }
        store_value(t, value);
    }
}
