// Addition and subtraction on packed 32-bit words, the modulus as words too.
// Include field.glsl first. `add` and `sub` return the last carry or borrow, 0 or 1.

void load_modulus(out uint p[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) p[i] = modulus[i];
}

uint add(uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    uint carry = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint c1, c2;
        z[i] = uaddCarry(uaddCarry(x[i], y[i], c1), carry, c2);
        carry = c1 + c2;
    }
    return carry;
}

uint sub(uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    uint borrow = 0;
    [[unroll]] for (uint i = 0; i < WORDS; ++i) {
        uint b1, b2;
        z[i] = usubBorrow(usubBorrow(x[i], y[i], b1), borrow, b2);
        borrow = b1 + b2;
    }
    return borrow;
}

void choose(bool first, uint x[WORDS], uint y[WORDS], out uint z[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = first ? x[i] : y[i];
}

// A valid element borrows when the modulus is subtracted from it.
void check(uint x[WORDS], uint p[WORDS], uint element, uint argument) {
    uint unused[WORDS];
    if (sub(x, p, unused) == 0) report(element, argument);
}
