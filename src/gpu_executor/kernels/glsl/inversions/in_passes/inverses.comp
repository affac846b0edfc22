// The second half of batch inversion (Montgomery's trick; the first is partial_products.comp).
// Invocation g starts with the inverse of the product of its elements and goes backwards over them.
// At an element x, `running` is the inverse of the product up to and including x: times the product
// before x it is the inverse of x, and times x it is the inverse of the product before x. Two
// products per element; the results of zeros are zero.
//
// `running` is below 2p if 2p is below R: a product with an element is below 2p again.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
#define KERNEL_PUSH uint elements;
#include "../../element.glsl"
#include "../replace_zero.glsl"

// Whether 2p is above R.
layout(constant_id = ID_REDUCES) const bool REDUCES = true;

ELEMENTS_IN(0, x)
ELEMENTS_IN(1, before)
ELEMENTS_IN(2, inverse)
ELEMENTS_OUT(3, y)

void main() {
    LIMB p[LIMBS];
    load_modulus_limbs(p);
    EACH_ELEMENT(g) {
        ELEMENT x, before, next_x, next_before, words, zero;
        LIMB running[LIMBS], factor[LIMBS], lazy[LIMBS], reduced[LIMBS];
        f_zero(zero);
        load_inverse(g, words);
        words_to_limbs(words, 0, running);
        uint steps = g < elements ? (elements - g - 1) / count + 1 : 0;
        uint i = g + max(steps, 1) * count - count;
        if (steps > 0) {
            load_x(i, next_x);
            load_before(i, next_before);
        }
        for (; steps > 0; --steps) {
            f_copy(next_x, x);
            f_copy(next_before, before);
            uint next = steps > 1 ? i - count : i;
            load_x(next, next_x);
            load_before(next, next_before);
            bool is_zero = replace_zero(x);
            words_to_limbs(before, SHIFT, factor);
            mul_limbs(running, factor, lazy);
            reduce_once(lazy, p, reduced);
            limbs_to_words(reduced, words);
            f_select(is_zero, zero, words, words);
            store_y(i, words);
            words_to_limbs(x, SHIFT, factor);
            mul_limbs(running, factor, lazy);
            reduce_once(lazy, p, reduced);
            [[unroll]] for (uint k = 0; k < LIMBS; ++k) running[k] = REDUCES ? reduced[k] : lazy[k];
            i = next;
        }
    }
}
