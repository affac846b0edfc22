// Products in an extension of degree d: an element is d coefficients c0 + c1 u + ..., and u^d is the
// nonresidue. Coefficient k of a product is
//     a[0] b[k] + ... + a[k] b[0] + nonresidue * (a[k+1] b[d-1] + ... + a[d-1] b[k+1]).
// An invocation computes one coefficient. All coefficients with one k are together, so that adjacent
// invocations do the same. All products are in one place of the code, because lavapipe takes long to
// compile each of them.
//
// `period` is the number of elements of b if they are repeated, else 0. `small` is the nonresidue as
// an int with few bits, which is multiplied by additions; 0 if there is no such int.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint degree; uint period; int small;
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_IN(2, nonresidue)
ELEMENTS_OUT(3, product)

void multiply_small(ELEMENT x, out ELEMENT z) {
    uint factor = uint(abs(small));
    ELEMENT multiple;
    f_copy(x, multiple);
    for (int bit = findMSB(factor) - 1; bit >= 0; --bit) {
        f_double(multiple, multiple);
        if ((factor >> bit & 1) == 1) f_add(multiple, x, multiple);
    }
    if (small < 0) f_neg(multiple, z);
    else f_copy(multiple, z);
}

void main() {
    EACH_ELEMENT(t) {
        uint elements = count / degree, element = t % elements, k = t / elements;
        uint a_first = element * degree;
        uint b_first = (period == 0 ? element : element % period) * degree;
        ELEMENT sum, x, y;
        f_zero(sum);
        // First the terms with a[i], k < i < d. At i = d their sum is multiplied by the nonresidue.
        // Then the terms with a[0] to a[k].
        uint first = k + 1 == degree ? degree + 1 : k + 1;
        for (uint i = first; i <= degree + 1 + k; ++i) {
            bool folds = i == degree;
            if (folds && small != 0) {
                multiply_small(sum, sum);
                continue;
            }
            if (folds) {
                f_copy(sum, x);
                load_nonresidue(0, y);
                f_zero(sum);
            } else {
                uint of_a = i < degree ? i : i - degree - 1;
                load_a(a_first + of_a, x);
                load_b(b_first + (i < degree ? k + degree - i : k - of_a), y);
            }
            f_mul(x, y, x);
            f_add(sum, x, sum);
        }
        store_product(a_first + k, sum);
    }
}
