// Products of matrices: rows of a, each of k elements, times matrices of k rows and n columns. Every
// m rows of a belong to one matrix of b. Each element of a product is the sum of `slices` results:
// slice s adds the terms s, s + slices, s + 2 slices, ..., so that slices load adjacent elements.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint m; uint n; uint k; uint slices;
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_OUT(2, sum)

void main() {
    EACH_ELEMENT(t) {
        uint slice = t % slices, at = t / slices, column = at % n, row = at / n;
        uint matrix = row / m * k * n;
        ELEMENT sum, x, y;
        f_zero(sum);
        for (uint i = slice; i < k; i += slices) {
            load_a(row * k + i, x);
            load_b(matrix + i * n + column, y);
            f_mul(x, y, x);
            f_add(sum, x, sum);
        }
        store_sum(t, sum);
    }
}
