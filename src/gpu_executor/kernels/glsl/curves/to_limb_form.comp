// Converts words in Montgomery form with the factor R = 2^(32 * WORDS) to words with the factor
// M = 2^(LIMBS * LIMB_BITS), which curve kernels compute with.
//
// If `row` is not 0, the numbers are coordinates of points, `row` of each sum. Their images, whose first
// coordinate is multiplied by beta, follow those of each sum (`primes/glv.py`).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../grid.glsl"
#include "coordinate.glsl"
CONSTANTS(1)

layout(push_constant) uniform Push { uint count; uint row; uint coordinates; };
ELEMENTS_IN(0, x)
ELEMENTS_OUT(2, result)

ELEMENTWISE(i) {
    uint words[WORDS];
    NUMBER factor, number;
    uint at = row == 0 ? i : i + i / row * row, copies = row == 0 ? 1 : 2;
    for (uint copy = 0; copy < copies; ++copy) {
        bool is_mapped = copy == 1 && i / DEGREE % coordinates == 0;
        load_x(i, words);
        load_constant(is_mapped ? IMAGE_TO_LIMB_FORM : TO_LIMB_FORM, factor);
        n_from_words(words, factor, number);
        n_to_words(number, words);
        store_result(at + copy * row, words);
    }
}
