// Converts words in Montgomery form with the factor R = 2^(32 * WORDS) to words with the factor
// M = 2^(LIMBS * LIMB_BITS), which curve kernels compute with.
//
// If `row` is not 0, the numbers are coordinates of points, `row` of each sum. Their images, whose first
// coordinate is multiplied by beta, follow those of each sum (`primes/glv.py`). An element is then one
// coefficient of all coordinates of a point: of these, only the first takes two products.
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
    bool has_images = row != 0;
    uint from = i, to = i, products = 1;
    if (has_images) {
        uint elements = row / coordinates, sum = i / elements, element = i % elements;
        from = sum * row + (element / DEGREE * coordinates) * DEGREE + element % DEGREE;
        to = from + sum * row;
        products = coordinates + 1;
    }
    // The first product of a point is that of its image.
    [[dont_unroll]] for (uint k = 0; k < products; ++k) {
        bool is_mapped = has_images && k == 0;
        uint at = has_images && k > 0 ? (k - 1) * DEGREE : 0;
        load_x(from + at, words);
        load_constant(is_mapped ? IMAGE_TO_LIMB_FORM : TO_LIMB_FORM, factor);
        n_from_words(words, factor, number);
        n_to_words(number, words);
        if (!is_mapped) store_result(to + at, words);
        if (has_images && k != 1) store_result(to + row + at, words);
    }
}
