// Lazily reduced elements: what kernels with many sums and products compute on.
//
// Include element.glsl with PRODUCTS first. LAZY is an integer below 2p, or an ELEMENT in families
// where lazy reduction gains nothing. Like ELEMENT, it may be an array that GLSL cannot assign.
//
//     lazy_begin()                         call once at the start of main
//     lazy_from_element(x, z)              from ELEMENT
//     lazy_to_element(x, z)                to ELEMENT, fully reduced
//     lazy_copy(x, z)                      z = x
//     lazy_add(x, y, z), lazy_sub(x, y, z)
//     lazy_mul(x, y, z)                    x * y, where y is an encoded factor (a twiddle)
//     lazy_sub_mul(x, y, w, z)             (x - y) * w, where w is an encoded factor
//     SHARED_LAZY(name, size)              shared memory: put_name(i, x), get_name(i, x)
//
// An encoded factor is value * 2^(LIMBS * LIMB_BITS) mod p for WIDE, so a product with it keeps the
// other operand's form. In the other families it is an element in the family's form.

#if defined(FAMILY_WIDE)
#include "families/wide_lazy.glsl"
#else
#include "families/scalar_lazy.glsl"
#endif
