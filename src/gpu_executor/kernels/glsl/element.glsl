// Field elements for kernels that are written once and compiled for each family of primes.
//
// A family is how elements lie in memory and how their product is reduced; -DFAMILY_... picks one:
//
//     WIDE        any odd prime up to 768 bits, as packed words; products by short limbs
//     MONTY31     primes below 2^31, one word, Montgomery form
//     MERSENNE31  2^31 - 1, one word as it is
//     GOLDILOCKS  2^64 - 2^32 + 1, one 64-bit number as it is
//
// All of them have the type ELEMENT, a number below p. It may be an array whose size a
// specialization constant gives, which GLSL neither assigns nor returns: results are the last
// parameter, and f_copy assigns. A parameter may be given twice, as in f_add(x, y, x).
//
//     f_zero(z), f_one(z)           0 and 1, the latter in Montgomery form where the family has it
//     f_copy(x, z)                  z = x
//     f_choose(first, x, y, z)      z = first ? x : y
//     f_is_zero(x), f_equal(x, y)   bool
//     f_add, f_sub (x, y, z)        f_neg, f_double (x, z)
//     f_mul (x, y, z)               f_square (x, z); x * y / R where there is a Montgomery form
//
//     ELEMENTS_IN(binding, name)    load_name(i, x)
//     ELEMENTS_OUT(binding, name)   store_name(i, x)
//     ELEMENTS_IN_OUT(binding, name) both
//
//     ELEMENTWISE(i) { ... }        main, for kernels that do the same for each element (grid.glsl)
//
// With -DNEIGHBOURS, kernels that do nothing but load, add, subtract, multiply and store have
// vectors of elements for ELEMENT, and i is the number of one (neighbours.glsl).
//
// Elements are taken as they are: whoever runs such a kernel knows that they are below p.
//
// Before it includes this, a kernel that multiplies defines PRODUCTS, without which WIDE has no
// f_mul, f_square and f_one, and KERNEL_PUSH as the members that it has behind the family's in the
// push constants: 20 bytes at most.

#extension GL_EXT_control_flow_attributes : require
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"

#ifndef KERNEL_PUSH
#define KERNEL_PUSH
#endif

#if defined(FAMILY_WIDE)
#include "families/wide.glsl"
#elif defined(FAMILY_MONTY31)
#include "families/monty31.glsl"
#elif defined(FAMILY_MERSENNE31)
#include "families/mersenne31.glsl"
#elif defined(FAMILY_GOLDILOCKS)
#include "families/goldilocks.glsl"
#else
#error an element kernel is compiled for a family: -DFAMILY_WIDE, say
#endif

#ifdef NEIGHBOURS
#include "neighbours.glsl"
#endif

void f_double(ELEMENT x, out ELEMENT z) {
    f_add(x, x, z);
}
