// Field elements for kernels that are written once and compiled for each family of primes.
//
// A family determines the memory layout of elements and the reduction of products. The compiler
// option -DFAMILY_... selects one:
//
//     WIDE        any odd prime up to 768 bits: 32-bit words, Montgomery form; products on short
//                 limbs, or with -DF64_LIMBS on float64 limbs
//     MONTY31     primes below 2^31: one word, Montgomery form
//     MERSENNE31  2^31 - 1: one word, canonical form
//     GOLDILOCKS  2^64 - 2^32 + 1: one 64-bit integer, canonical form
//
// Every family defines the type ELEMENT, an integer below p. ELEMENT may be an array whose size is
// a specialization constant. GLSL can neither assign nor return such an array, so results are the
// last parameter, and f_copy assigns. The same variable may be operand and result, as in f_add(x,
// y, x).
//
//     f_zero(z), f_one(z)           0 and 1, in Montgomery form if the family has it
//     f_copy(x, z)                  z = x
//     f_select(condition, x, y, z)  z = condition ? x : y
//     f_is_zero(x), f_equal(x, y)   bool
//     f_add, f_sub (x, y, z)        f_neg, f_double (x, z)
//     f_mul (x, y, z)               f_square (x, z); in Montgomery form the product is x * y / R
//
//     ELEMENTS_IN(binding, name)    declares load_name(i, x)
//     ELEMENTS_OUT(binding, name)   declares store_name(i, x)
//     ELEMENTS_IN_OUT(binding, name) declares both
//
//     ELEMENTWISE(i) { ... }        the main function of kernels that map element i (grid.glsl)
//
// With -DPACKED, ELEMENT is a vector of elements and i the index of a vector (packed.glsl). That is
// for kernels that only load, add, subtract, multiply and store.
//
// Elements are not checked: the caller guarantees that they are below p. With -DCHECKED, a kernel
// has a status word, and CHECK(x, i, argument) reports elements that are not below p (status.glsl);
// otherwise CHECK is empty. Only WIDE, which serves every prime, has checked kernels.
//
// Before including this file, a kernel that multiplies defines PRODUCTS; without it WIDE has no
// f_mul, f_square and f_one. A kernel with push constants of its own defines KERNEL_PUSH as their
// members, 20 bytes at most; they follow those of the family.

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
#error compile an element kernel for a family of primes, with -DFAMILY_WIDE for example
#endif

#ifdef PACKED
#include "packed.glsl"
#endif

#ifdef CHECKED
#include "status.glsl"
#else
#define CHECK(x, i, argument)
#endif

void f_double(ELEMENT x, out ELEMENT z) {
    f_add(x, x, z);
}
