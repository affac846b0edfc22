// Cumulative sums along rows: y[i] is the sum of x[0] .. x[i]. `before` has, for each chunk of
// `chunk` elements, the sum of all chunks up to and including it; a chunk starts with the sum of the
// chunk before it.
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint columns; uint chunk; uint chunks;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, before)
ELEMENTS_OUT(2, y)

void main() {
    EACH_ELEMENT(t) {
        uint row = t / chunks, c = t % chunks;
        uint first = c * chunk, end = min(first + chunk, columns);
        ELEMENT running, x;
        f_zero(running);
        if (c > 0) load_before(t - 1, running);
        for (uint i = first; i < end; ++i) {
            load_x(row * columns + i, x);
            f_add(running, x, running);
            store_y(row * columns + i, running);
        }
    }
}
