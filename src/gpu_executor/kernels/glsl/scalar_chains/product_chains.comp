// result[i] is the sum of eight chains of CHAIN_LENGTH dependent products x = x * b[i], which begin
// with a[i], a[i] + 1, a[i] + 2 and so on. There is no memory access between them: the kernel measures
// the multiplier alone. Elements are not checked.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#include "../element.glsl"

layout(constant_id = ID_CHAIN_LENGTH) const uint CHAIN_LENGTH = 64; // a multiple of UNROLLED
const uint CHAINS = 8, UNROLLED = 8;

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
ELEMENTS_OUT(2, result)

void main() {
    uint i = first_element();
    if (i >= count) return;
    ELEMENT x[CHAINS], factor, one, sum;
    load_b(i, factor);
    load_a(i, sum);
    f_one(one);
    [[unroll]] for (uint c = 0; c < CHAINS; ++c) {
        f_copy(sum, x[c]);
        f_add(sum, one, sum);
    }
    for (uint k = 0; k < CHAIN_LENGTH / UNROLLED; ++k) {
        [[unroll]] for (uint j = 0; j < UNROLLED; ++j) {
            [[unroll]] for (uint c = 0; c < CHAINS; ++c) f_mul(x[c], factor, x[c]);
        }
    }
    f_zero(sum);
    [[unroll]] for (uint c = 0; c < CHAINS; ++c) f_add(sum, x[c], sum);
    store_result(i, sum);
}
