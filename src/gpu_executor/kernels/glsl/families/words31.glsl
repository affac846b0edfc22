// Shared by families whose elements are below 2^31: one word in memory, and a sum fits a word.
// Define the modulus P before including this file.

#define SCALAR uint
#define SCALARS_PER_VECTOR 4
#define VECTOR uvec4
#include "scalar.glsl"

// x mod p for an x in -p .. p - 1, represented modulo 2^32: a negative x is larger than x + p.
uint lift_negative(uint x) { return min(x, x + P); }

// x mod p for an x below 2p: if x < p, x - p wraps around and is larger than x.
uint reduce_once(uint x) { return min(x, x - P); }

void f_add(uint x, uint y, out uint z) { z = reduce_once(x + y); }
void f_sub(uint x, uint y, out uint z) { z = lift_negative(x - y); }
void f_neg(uint x, out uint z) { z = lift_negative(0 - x); }
