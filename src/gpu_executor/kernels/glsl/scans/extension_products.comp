// Products in an extension of degree d: an element is d coefficients c0 + c1 u + ..., and u^d is an
// element r. With s[e] the sum of all a[i] b[j], i + j = e, coefficient k of a product is
//     s[k] + r[0][k] s[d] + r[1][k] s[d + 1] + ... + r[d - 2][k] s[2 d - 2],
// where r[m][k] is coefficient k of u^(d + m). An invocation computes one coefficient. All
// coefficients with one k are together, so that adjacent invocations do the same. All products are in
// one place of the code, because lavapipe takes long to compile each of them.
//
// `period` is the number of elements of b if they are repeated, else 0. `small0` to `small2` are the
// r[m][k] as signed bytes, byte m * d + k first. A small one is multiplied by additions. -128 stands
// for one that is not small, which is in the table.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint degree; uint period; uint small0; uint small1; uint small2;
#include "../element.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_IN(2, reduction)
ELEMENTS_OUT(3, product)

const int LARGE = -128;

int get_small(uint index) {
    uint word = index < 4 ? small0 : index < 8 ? small1 : small2;
    return int(word << (24 - (index % 4) * 8)) >> 24;
}

void multiply_small(ELEMENT x, int small, out ELEMENT z) {
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
        ELEMENT sum, part, x, y;
        f_zero(sum);
        for (uint m = 0; m < degree; ++m) {
            // The powers from u^d on, then u^k.
            bool is_high = m + 1 < degree;
            uint e = is_high ? degree + m : k;
            int factor = is_high ? get_small(m * degree + k) : 1;
            if (factor == 0) continue;
            uint first = e < degree ? 0 : e + 1 - degree, last = min(e, degree - 1);
            uint end = factor == LARGE ? last + 1 : last;
            f_zero(part);
            for (uint i = first; i <= end; ++i) {
                if (i <= last) {
                    load_a(a_first + i, x);
                    load_b(b_first + e - i, y);
                } else {
                    f_copy(part, x);
                    load_reduction(m * degree + k, y);
                    f_zero(part);
                }
                f_mul(x, y, x);
                f_add(part, x, part);
            }
            if (factor != LARGE && factor != 1) multiply_small(part, factor, part);
            f_add(sum, part, sum);
        }
        store_product(a_first + k, sum);
    }
}
