// Numbers in work: what a kernel of many sums and products keeps an element as meanwhile.
//
// Include element.glsl with PRODUCTS first. WORK is a number below 2p, or an ELEMENT where a family
// gains nothing by waiting; like ELEMENT it may be an array that GLSL does not assign.
//
//     w_begin()                     once, at the beginning of main
//     w_from(x, z), w_to(x, z)      from and to an ELEMENT
//     w_copy(x, z)                  z = x
//     w_add(x, y, z), w_sub(x, y, z)
//     w_mul(x, y, z)                x * y, where y is a factor: an ELEMENT in work form, from a table
//     w_sub_mul(x, y, w, z)         (x - y) * w
//     SHARED_WORK(name, size)       shared memory: put_name(i, x), get_name(i, x)
//
// A factor in work form is value * 2^(LIMBS * LIMB_BITS) mod p for WIDE, so that a product with it
// leaves the other operand's form as it is; for the others it is an element like any other.

#if defined(FAMILY_WIDE)
#include "families/wide_work.glsl"
#else
#include "families/single_work.glsl"
#endif
