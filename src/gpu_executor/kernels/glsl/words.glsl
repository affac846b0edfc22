// Elements as WORDS 32-bit words, the least significant first, which is their layout in memory.
// Sums and differences are computed on words.
//
// The number of words is a specialization constant, so after specialization every array has a fixed
// size and every loop unrolls. Declare `modulus` before including this file.

#extension GL_EXT_control_flow_attributes : require

#include "spec_ids.glsl"

layout(constant_id = ID_WORDS) const uint WORDS = 12;

#ifndef F64_LIMBS
// The modulus, if the push constants hold its words.
void load_modulus_words(out uint p[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) p[i] = modulus[i];
}
#endif

// z = x + y and z = x - y; they return the carry or borrow out, 0 or 1.
uint add_words(uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    uint carry = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint c1, c2;
        z[i] = uaddCarry(uaddCarry(x[i], y[i], c1), carry, c2);
        carry = c1 + c2;
    }
    return carry;
}

uint sub_words(uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    uint borrow = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint b1, b2;
        z[i] = usubBorrow(usubBorrow(x[i], y[i], b1), borrow, b2);
        borrow = b1 + b2;
    }
    return borrow;
}

bool below_words(uint x[WORDS], uint y[WORDS]) {
    uint unused[WORDS];
    return sub_words(x, y, unused) != 0;
}

void select_words(bool condition, uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = condition ? x[i] : y[i];
}

// (x + y) mod p and (x - y) mod p for operands below p.
void add_modulo(uint x[WORDS], uint y[WORDS], uint p[WORDS], out uint z[WORDS]) {
    uint sum[WORDS], reduced[WORDS];
    uint carry = add_words(x, y, sum);
    uint borrow = sub_words(sum, p, reduced);
    select_words(carry >= borrow, reduced, sum, z);
}

void sub_modulo(uint x[WORDS], uint y[WORDS], uint p[WORDS], out uint z[WORDS]) {
    uint difference[WORDS], wrapped[WORDS];
    uint borrow = sub_words(x, y, difference);
    add_words(difference, p, wrapped);
    select_words(borrow == 0, difference, wrapped, z);
}
