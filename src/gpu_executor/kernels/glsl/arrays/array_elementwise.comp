// An operation on the elements of one or two arrays, by NumPy's rules. Of an operation on one
// array, b is a again.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "../grid.glsl"
#include "numbers.glsl"
#include "strides.glsl"

layout(constant_id = ID_A_TYPE) const uint A_TYPE = TYPE_UINT32;
layout(constant_id = ID_B_TYPE) const uint B_TYPE = TYPE_UINT32;
layout(constant_id = ID_A_IS_SCALAR) const bool A_IS_SCALAR = false;
layout(constant_id = ID_B_IS_SCALAR) const bool B_IS_SCALAR = false;

layout(push_constant) uniform Push {
    uint count;
    uint elements;
    uint lengths[4];
    OPERAND(a)
    OPERAND(b)
};
layout(set = 0, binding = 0, std430) readonly buffer A { uint a_words[]; };
layout(set = 0, binding = 1, std430) readonly buffer B { uint b_words[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Result { uint result[]; };

DEFINE_LOAD(a, a_words, A_TYPE)
DEFINE_LOAD(b, b_words, B_TYPE)

NUMBER load_a(uvec4 at) {
    if (A_IS_SCALAR) return make_number(a_scalar[0], a_scalar[1], A_TYPE);
    uint i = locate(at, a_start, VECTOR(a_strides));
    return make_number(a_low(i), count_bytes(A_TYPE) == 8 ? a_high(i) : 0, A_TYPE);
}

NUMBER load_b(uvec4 at) {
    if (B_IS_SCALAR) return make_number(b_scalar[0], b_scalar[1], B_TYPE);
    uint i = locate(at, b_start, VECTOR(b_strides));
    return make_number(b_low(i), count_bytes(B_TYPE) == 8 ? b_high(i) : 0, B_TYPE);
}

uvec2 compute_element(uint i) {
    uvec4 at = unravel(i, VECTOR(lengths));
    NUMBER x = compute(load_a(at), load_b(at), is_signed(A_TYPE), is_signed(B_TYPE));
    return uvec2(get_low(x, RESULT_TYPE), get_high(x));
}

WRITE_ELEMENTS(result, compute_element)
