// The sum of each chunk of a row: rows have `columns` elements, chunks have `chunk`.
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint columns; uint chunk; uint chunks;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_OUT(1, sum)

void main() {
    EACH_ELEMENT(t) {
        uint row = t / chunks, first = (t % chunks) * chunk, end = min(first + chunk, columns);
        ELEMENT sum, x;
        load_x(row * columns + first, sum);
        for (uint i = first + 1; i < end; ++i) {
            load_x(row * columns + i, x);
            f_add(sum, x, sum);
        }
        store_sum(t, sum);
    }
}
