// Sums along rows of `columns` elements: invocation g of a row adds the elements g, g + groups,
// g + 2 groups, ..., so that each row becomes a row of `groups` sums.
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint columns; uint groups;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_OUT(1, sum)

void main() {
    EACH_ELEMENT(t) {
        uint row = t / groups, g = t % groups;
        ELEMENT sum, x;
        f_zero(sum);
        for (uint i = g; i < columns; i += groups) {
            load_x(row * columns + i, x);
            f_add(sum, x, sum);
        }
        store_sum(t, sum);
    }
}
