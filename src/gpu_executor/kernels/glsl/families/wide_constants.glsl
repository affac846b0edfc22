// R mod p and R^2 mod p as words. The push constants are too small for them and the modulus.
//
// They are specialization constants, so the driver computes what depends only on them, such as
// their limbs, when it compiles the pipeline. NEGATIVE_INVERSE already ties a pipeline to one
// prime.

#include "../spec_ids.glsl"

#define SPEC_WORD(first, name, n) layout(constant_id = first + n) const uint name##n = 0;
#define SPEC_WORDS(first, name)                                                               \
    SPEC_WORD(first, name, 0) SPEC_WORD(first, name, 1) SPEC_WORD(first, name, 2)             \
    SPEC_WORD(first, name, 3) SPEC_WORD(first, name, 4) SPEC_WORD(first, name, 5)             \
    SPEC_WORD(first, name, 6) SPEC_WORD(first, name, 7) SPEC_WORD(first, name, 8)             \
    SPEC_WORD(first, name, 9) SPEC_WORD(first, name, 10) SPEC_WORD(first, name, 11)           \
    SPEC_WORD(first, name, 12) SPEC_WORD(first, name, 13) SPEC_WORD(first, name, 14)          \
    SPEC_WORD(first, name, 15) SPEC_WORD(first, name, 16) SPEC_WORD(first, name, 17)          \
    SPEC_WORD(first, name, 18) SPEC_WORD(first, name, 19) SPEC_WORD(first, name, 20)          \
    SPEC_WORD(first, name, 21) SPEC_WORD(first, name, 22) SPEC_WORD(first, name, 23)

#define SPEC_WORD_ARRAY(name)                                                                 \
    uint[24](name##0, name##1, name##2, name##3, name##4, name##5, name##6, name##7,          \
    name##8, name##9, name##10, name##11, name##12, name##13, name##14, name##15, name##16,   \
    name##17, name##18, name##19, name##20, name##21, name##22, name##23)

SPEC_WORDS(ID_ONE, ONE)
SPEC_WORDS(ID_R_SQUARED, R_SQUARED)

void f_one(out uint z[WORDS]) {
    const uint one[24] = SPEC_WORD_ARRAY(ONE);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = one[i];
}

void f_r_squared(out uint z[WORDS]) {
    const uint r_squared[24] = SPEC_WORD_ARRAY(R_SQUARED);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = r_squared[i];
}

// The integer 1: the Montgomery product with it divides by R.
void f_canonical_one(out uint z[WORDS]) {
    [[unroll]] for (uint i = 0; i < WORDS; ++i) z[i] = i == 0 ? 1 : 0;
}
