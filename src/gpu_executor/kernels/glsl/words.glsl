// Packed 32-bit words, the least significant first: how every element of more than one lies in
// memory, and sums and differences of such elements.
//
// The number of words is a specialization constant, so that after specialization every array has a
// fixed size and every loop unrolls. Whoever includes this has declared `modulus`.

#extension GL_EXT_control_flow_attributes : require

layout(constant_id = 2) const uint WORDS = 12;

#ifndef DOUBLES
// The modulus, where it is given as words.
void load_modulus_words(out uint p[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) p[i] = modulus[i];
}
#endif

// x + y and x - y; they return the last carry or borrow, 0 or 1.
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

void choose_words(bool first, uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = first ? x[i] : y[i];
}

// (x + y) mod p and (x - y) mod p, both operands below p.
void add_modulo(uint x[WORDS], uint y[WORDS], uint p[WORDS], out uint z[WORDS]) {
    uint sum[WORDS], reduced[WORDS];
    uint carry = add_words(x, y, sum);
    uint borrow = sub_words(sum, p, reduced);
    choose_words(carry >= borrow, reduced, sum, z);
}

void sub_modulo(uint x[WORDS], uint y[WORDS], uint p[WORDS], out uint z[WORDS]) {
    uint difference[WORDS], wrapped[WORDS];
    uint borrow = sub_words(x, y, difference);
    add_words(difference, p, wrapped);
    choose_words(borrow == 0, difference, wrapped, z);
}
