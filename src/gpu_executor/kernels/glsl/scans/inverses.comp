// The second half: with the inverse of what invocation g multiplied (partial_products.comp), it goes
// back over its elements, the last first. The inverse times what was multiplied before an element is
// that element's inverse; the inverse times the element is that of what was multiplied before it.
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
        uint own = g < elements ? (elements - g - 1) / count + 1 : 0;
        for (uint turn = own; turn > 0; --turn) {
            uint i = g + (turn - 1) * count;
            load_x(i, x);
            load_before(i, before);
            f_mul(running, before, result);
            f_mul(running, x, next);
            bool none = f_is_zero(x);
            f_choose(none, zero, result, result);
            f_choose(none, running, next, running);
            store_y(i, result);
        }
    }
}
