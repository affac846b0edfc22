// Numbers in limb form: what kernels with long chains of products compute on.
//
// Define LIMB_FORM and PRODUCTS and include element.glsl first. NUMBER is lazily reduced limbs, or
// an ELEMENT in families of one word. Like ELEMENT, it may be an array that GLSL cannot assign. The
// same variable may be operand and result.
//
//     n_from_element(x, z)          from ELEMENT
//     n_to_element(x, z)            to ELEMENT, fully reduced
//     n_copy(x, z)                  z = x
//     n_select(condition, x, y, z)  z = condition ? x : y
//     n_mul(x, y, z), n_square(x, z)
//
// With ONLY_PRODUCTS, families of one word have numbers of which nothing but products may be computed.

#if defined(FAMILY_WIDE)
#include "families/wide_limb_form.glsl"
#elif defined(ONLY_PRODUCTS)
#include "families/scalar_products.glsl"
#else
#include "families/scalar_limb_form.glsl"
#endif
