// The first half of batch inversion (Montgomery's trick; the second is inverses.comp). Invocation g
// multiplies the elements g, g + groups, g + 2 groups, ... of x and stores, for each, the product
// of those before it. Zeros, which have no inverse, are skipped. One product per element.
//
// Adjacent invocations load adjacent elements, so that loads coalesce.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint elements;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_OUT(1, before)
ELEMENTS_OUT(2, product)

void main() {
    EACH_ELEMENT(g) {
        ELEMENT running, x, next;
        f_one(running);
        for (uint i = g; i < elements; i += count) {
            load_x(i, x);
            store_before(i, running);
            f_mul(running, x, next);
            f_select(f_is_zero(x), running, next, running);
        }
        store_product(g, running);
    }
}
