// Truncates or zero-pads rows from `own_columns` to `columns` elements.
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint columns; uint own_columns;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_OUT(1, y)

void main() {
    EACH_ELEMENT(t) {
        uint row = t / columns, i = t % columns;
        ELEMENT x;
        f_zero(x);
        if (i < own_columns) load_x(row * own_columns + i, x);
        store_y(t, x);
    }
}
