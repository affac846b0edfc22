// What elements below 2^31 share: one word in memory, and sums that fit it. Whoever includes this
// has defined P, the modulus.

#define ELEMENT uint

#define ELEMENTS_VIEW(at, name, access) \
    layout(set = 0, binding = at, std430) access buffer name##_Words { uint name##_words[]; };
#define ELEMENTS_LOAD(name) \
    void load_##name(uint element, out uint x) { x = name##_words[element]; }
#define ELEMENTS_STORE(name) \
    void store_##name(uint element, uint x) { name##_words[element] = x; }

// To be measured: whether invocations that take four neighbours in one 16-byte load stream faster.
#define ELEMENTS_IN(at, name) ELEMENTS_VIEW(at, name, readonly) ELEMENTS_LOAD(name)
#define ELEMENTS_OUT(at, name) ELEMENTS_VIEW(at, name, writeonly) ELEMENTS_STORE(name)
#define ELEMENTS_IN_OUT(at, name) ELEMENTS_VIEW(at, name, ) ELEMENTS_LOAD(name) ELEMENTS_STORE(name)

void f_zero(out uint z) { z = 0; }
void f_copy(uint x, out uint z) { z = x; }
void f_choose(bool first, uint x, uint y, out uint z) { z = first ? x : y; }
bool f_is_zero(uint x) { return x == 0; }
bool f_equal(uint x, uint y) { return x == y; }

// x mod p for an x from -p to p - 1, negative ones modulo 2^32; those are above any x + p.
uint raise_once(uint x) { return min(x, x + P); }

// x mod p for an x below 2p: below p, x - p wraps around to more than x.
uint reduce_once(uint x) { return min(x, x - P); }

void f_add(uint x, uint y, out uint z) { z = reduce_once(x + y); }
void f_sub(uint x, uint y, out uint z) { z = raise_once(x - y); }
void f_neg(uint x, out uint z) { z = raise_once(0 - x); }
