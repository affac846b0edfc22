// What elements below 2^31 share: one word in memory, and sums that fit it. Whoever includes this
// has defined P, the modulus.

#define NUMBER uint
#define NUMBERS uvec4
#include "numbers.glsl"

// x mod p for an x from -p to p - 1, negative ones modulo 2^32; those are above any x + p.
uint raise_once(uint x) { return min(x, x + P); }

// x mod p for an x below 2p: below p, x - p wraps around to more than x.
uint reduce_once(uint x) { return min(x, x - P); }

void f_add(uint x, uint y, out uint z) { z = reduce_once(x + y); }
void f_sub(uint x, uint y, out uint z) { z = raise_once(x - y); }
void f_neg(uint x, out uint z) { z = raise_once(0 - x); }
