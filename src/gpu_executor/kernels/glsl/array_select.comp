// Elements of a where the condition is true, else of b, of any type. The condition is an array of
// bools.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "arrays/elements.glsl"
#include "arrays/strides.glsl"

layout(constant_id = ID_A_IS_SCALAR) const bool A_IS_SCALAR = false;
layout(constant_id = ID_B_IS_SCALAR) const bool B_IS_SCALAR = false;

layout(push_constant) uniform Push {
    uint count;
    uint elements;
    uint lengths[4];
    OPERAND(condition)
    OPERAND(a)
    OPERAND(b)
};
layout(set = 0, binding = 0, std430) readonly buffer Condition { uint condition_words[]; };
layout(set = 0, binding = 1, std430) readonly buffer A { uint a_words[]; };
layout(set = 0, binding = 2, std430) readonly buffer B { uint b_words[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Result { uint result[]; };

DEFINE_LOAD(condition, condition_words, TYPE_BOOL)
DEFINE_LOAD(a, a_words, RESULT_TYPE)
DEFINE_LOAD(b, b_words, RESULT_TYPE)

uvec2 load_a(uvec4 at) {
    if (A_IS_SCALAR) return uvec2(a_scalar[0], a_scalar[1]);
    uint i = locate(at, a_start, VECTOR(a_strides));
    return uvec2(a_low(i), count_bytes(RESULT_TYPE) == 8 ? a_high(i) : 0);
}

uvec2 load_b(uvec4 at) {
    if (B_IS_SCALAR) return uvec2(b_scalar[0], b_scalar[1]);
    uint i = locate(at, b_start, VECTOR(b_strides));
    return uvec2(b_low(i), count_bytes(RESULT_TYPE) == 8 ? b_high(i) : 0);
}

uvec2 select_element(uint i) {
    uvec4 at = unravel(i, VECTOR(lengths));
    uint decides = locate(at, condition_start, VECTOR(condition_strides));
    if (condition_low(decides) != 0) return load_a(at);
    return load_b(at);
}

WRITE_ELEMENTS(result, select_element)
