// Every element times all before it in its row. `before` has, for each run of `chunk` elements, the
// product of the runs up to and with it; the one before a run is where the run begins.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint columns; uint chunk; uint chunks;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, before)
ELEMENTS_OUT(2, y)

void main() {
    EACH_ELEMENT(t) {
        uint row = t / chunks, own = t % chunks;
        uint first = own * chunk, end = min(first + chunk, columns);
        ELEMENT running, x;
        f_one(running);
        if (own > 0) load_before(t - 1, running);
        for (uint i = first; i < end; ++i) {
            load_x(row * columns + i, x);
            f_mul(running, x, running);
            store_y(row * columns + i, running);
        }
    }
}
