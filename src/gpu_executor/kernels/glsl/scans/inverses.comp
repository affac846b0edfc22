// The second half of batch inversion (Montgomery's trick; the first is partial_products.comp).
// Invocation g starts with the inverse of the product of its elements and goes backwards over them.
// At an element x, `running` is the inverse of the product up to and including x: times the product
// before x it is the inverse of x, and times x it is the inverse of the product before x. Two
// products per element; zeros are skipped and their results are zero.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint elements;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, before)
ELEMENTS_IN(2, inverse)
ELEMENTS_OUT(3, y)

void main() {
    EACH_ELEMENT(g) {
        ELEMENT running, x, before, result, next, zero;
        f_zero(zero);
        load_inverse(g, running);
        uint steps = g < elements ? (elements - g - 1) / count + 1 : 0;
        for (uint step = steps; step > 0; --step) {
            uint i = g + (step - 1) * count;
            load_x(i, x);
            load_before(i, before);
            f_mul(running, before, result);
            f_mul(running, x, next);
            bool is_zero = f_is_zero(x);
            f_select(is_zero, zero, result, result);
            f_select(is_zero, running, next, running);
            store_y(i, result);
        }
    }
}
