// R mod p and R^2 mod p as words. The push constants are too small for them and the modulus.
//
// They are specialization constants, so the driver computes what depends only on them, such as
// their limbs, when it compiles the pipeline. NEGATIVE_INVERSE already ties a pipeline to one
// prime.

#include "../spec_ids.glsl"

#include "../spec_words.glsl"

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
