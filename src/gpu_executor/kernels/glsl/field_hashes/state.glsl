// The state of a permutation, WIDTH numbers, and sums of products of them. An invocation has all numbers
// of a state; with GROUPED, each invocation of a group has one (group_state.glsl).
//
// Define PRODUCTS and LIMB_FORM and include element.glsl first. A number of the state is below 2p in
// the family WIDE, where it has LIMBS limbs in Montgomery form with the factor
// M = 2^(LIMBS * LIMB_BITS); `hash_limbs` in kernels/field_hashes.py chooses limbs with enough slack
// M / p. In the other families it is an element.
//
//     get_state(i, x), put_state(i, x)  the numbers of the state; in a group only lane i has number i
//     share_state(), get_shared(i, x)   x is number i as it was shared; every invocation of a work-group
//                                       calls share_state()
//     put_mixed(i, x), take_mixed(i)    number i becomes x when all are taken
//     n_add(x, y, z)                    x + y
//     n_add_factor(x, y, z)             x + y, below 3p: only a factor of a product
//     n_power(x, z)                     x^EXPONENT, of an x below 3p
//     begin_sum(t), add_term(x, y, i, t), end_sum(t, z)
//                                       z is the sum of the products x * y of WIDTH terms at most,
//                                       of which y is a constant, and i the index of the term
//     CONSTANTS_IN(binding, name)       declares load_name(i, x)
//     EACH_LANE(run, end)               run(i) for i below `end`; in a group, for lane i in lane i

#include "../limb_form.glsl"

layout(constant_id = ID_WIDTH) const uint WIDTH = 3;
layout(constant_id = ID_EXPONENT) const uint EXPONENT = 5;
// Whether the numbers of the state are in registers. Otherwise loops over them remain, and the state
// is an array in memory: compilers for CPUs take seconds for wide states in registers. In a group, whether
// loops over the numbers are unrolled.
layout(constant_id = ID_UNROLLED) const bool UNROLLED = true;

#ifdef GROUPED
#include "group_state.glsl"
#else
#define EACH_LANE(run, end)                                                                   \
    if (UNROLLED) {                                                                           \
        [[unroll]] for (uint lane = 0; lane < end; ++lane) run(lane);                         \
    } else {                                                                                  \
        [[dont_unroll]] for (uint lane = 0; lane < end; ++lane) run(lane);                    \
    }
#endif

#ifdef FAMILY_WIDE
#include "wide_state.glsl"
#else
#include "scalar_state.glsl"
#endif

#ifndef GROUPED
void share_state() {}
void get_shared(uint i, out NUMBER z) { get_state(i, z); }
#endif

#ifdef FAMILY_MONTY31
#include "monty31_products.glsl"
#else
// Left-to-right square and multiply: 2 products for x^3, 3 for x^5, 4 for x^7.
void n_power(NUMBER x, out NUMBER z) {
    n_copy(x, z);
    const int first = findMSB(EXPONENT) - 1;
    if (UNROLLED) {
        [[unroll]] for (int bit = first; bit >= 0; --bit) {
            n_square(z, z);
            if ((EXPONENT >> bit & 1) == 1) n_mul(z, x, z);
        }
    } else { // one product in the code
        bool multiplies = false;
        [[dont_unroll]] for (int bit = first; bit >= 0;) {
            NUMBER factor;
            n_select(multiplies, x, z, factor);
            n_mul(z, factor, z);
            multiplies = !multiplies && (EXPONENT >> bit & 1) == 1;
            if (!multiplies) --bit;
        }
    }
}
#endif
