// Converts words in Montgomery form with the factor R = 2^(32 * WORDS) to words with the factor
// M = 2^(LIMBS * LIMB_BITS), which curve kernels compute with.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../grid.glsl"
#include "coordinate.glsl"
CONSTANTS(1)

layout(push_constant) uniform Push { uint count; };
ELEMENTS_IN(0, x)
ELEMENTS_OUT(2, result)

ELEMENTWISE(i) {
    uint words[WORDS];
    NUMBER factor, number;
    load_x(i, words);
    load_constant(TO_LIMB_FORM, factor);
    n_from_words(words, factor, number);
    n_to_words(number, words);
    store_result(i, words);
}
