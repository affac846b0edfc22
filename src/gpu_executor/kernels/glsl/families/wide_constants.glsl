// R mod p and R^2 mod p as words, which would not fit the push constants beside the modulus.
//
// They are specialization constants, so that what follows from them is computed when a pipeline is
// made: cutting them into limbs, for one. A pipeline serves one prime anyway, by NEGATIVE_INVERSE.

#define KNOWN_WORD(first, name, n) layout(constant_id = first + n) const uint name##n = 0;
#define KNOWN_WORDS(first, name)                                                              \
    KNOWN_WORD(first, name, 0) KNOWN_WORD(first, name, 1) KNOWN_WORD(first, name, 2)          \
    KNOWN_WORD(first, name, 3) KNOWN_WORD(first, name, 4) KNOWN_WORD(first, name, 5)          \
    KNOWN_WORD(first, name, 6) KNOWN_WORD(first, name, 7) KNOWN_WORD(first, name, 8)          \
    KNOWN_WORD(first, name, 9) KNOWN_WORD(first, name, 10) KNOWN_WORD(first, name, 11)        \
    KNOWN_WORD(first, name, 12) KNOWN_WORD(first, name, 13) KNOWN_WORD(first, name, 14)       \
    KNOWN_WORD(first, name, 15) KNOWN_WORD(first, name, 16) KNOWN_WORD(first, name, 17)       \
    KNOWN_WORD(first, name, 18) KNOWN_WORD(first, name, 19) KNOWN_WORD(first, name, 20)       \
    KNOWN_WORD(first, name, 21) KNOWN_WORD(first, name, 22) KNOWN_WORD(first, name, 23)

#define WORDS_OF(name)                                                                        \
    uint[24](name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7,          \
    name##8, name##9, name##10, name##11, name##12, name##13, name##14, name##15, name##16,   \
    name##17, name##18, name##19, name##20, name##21, name##22, name##23)

KNOWN_WORDS(8, ONE)
KNOWN_WORDS(32, R_SQUARED)

void f_one(out uint z[WORDS]) {
    const uint one[24] = WORDS_OF(ONE);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = one[i];
}

void f_r_squared(out uint z[WORDS]) {
    const uint r_squared[24] = WORDS_OF(R_SQUARED);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = r_squared[i];
}

// A product with it divides by R.
void f_plain_one(out uint z[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = i == 0 ? 1 : 0;
}
