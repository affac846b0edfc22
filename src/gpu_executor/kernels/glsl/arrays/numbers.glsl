// The numbers that array kernels compute with, and what they compute. An array's elements are
// widened to NUMBER:
//
// - without macros: 32-bit integers; bool, uint8, int8, uint16, int16, uint32, int32;
// - LONG: 64-bit integers; all integers;
// - FLOATS: the bits of a float32; float16, float32;
// - FLOATS and LONG: the bits of a float64.
//
// Floats are bits except in sums, differences, products and quotients, so that no compiler's
// assumptions about NaN, infinities and signs of zero change a comparison, a minimum or a sign.

#ifdef LONG
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#include "../spec_ids.glsl"
#include "elements.glsl"

#ifdef LONG
#define NUMBER uint64_t
#define NUMBER_BITS 64
#else
#define NUMBER uint
#define NUMBER_BITS 32
#endif
const NUMBER SIGN_BIT = NUMBER(1) << (NUMBER_BITS - 1);

layout(constant_id = ID_OPERATION) const uint OPERATION = 0;
// Whether the result of arithmetic is a signed integer.
layout(constant_id = ID_IS_SIGNED) const bool IS_SIGNED = false;
// The bits of an integer in its type, of which a shift cannot take more.
layout(constant_id = ID_BITS) const uint BITS = 32;

// A number from the words of an element.
NUMBER make_number(uint low, uint high, uint type) {
#if defined(FLOATS) && defined(LONG)
    return join_words(uvec2(low, high));
#elif defined(FLOATS)
    return type == TYPE_FLOAT16 ? half_to_float(low) : low;
#elif defined(LONG)
    if (count_bytes(type) == 8) return join_words(uvec2(low, high));
    uint word = widen(low, type);
    return join_words(uvec2(word, is_signed(type) && word >> 31 != 0 ? 0xffffffffu : 0));
#else
    return widen(low, type);
#endif
}

// The low word of a number in the memory of an element: the caller cuts the bits off that it has
// too many.
uint get_low(NUMBER x, uint type) {
#ifdef LONG
    if (type == TYPE_BOOL) return x != 0 ? 1 : 0;
    return split_words(x).x;
#else
    if (type == TYPE_BOOL) return x != 0 ? 1 : 0;
    return type == TYPE_FLOAT16 ? float_to_half(x) : x;
#endif
}

uint get_high(NUMBER x) {
#ifdef LONG
    return split_words(x).y;
#else
    return 0;
#endif
}

NUMBER from_bool(bool x) { return x ? NUMBER(1) : NUMBER(0); }

#ifdef FLOATS
#include "floats.glsl"
#else
#include "integers.glsl"
#endif

// The result of OPERATION, where a and b have their types (integers alone care).
NUMBER compute(NUMBER a, NUMBER b, bool a_signed, bool b_signed) {
    if (OPERATION == OP_EQUAL) return from_bool(is_equal(a, b, a_signed, b_signed));
    if (OPERATION == OP_NOT_EQUAL) return from_bool(!is_equal(a, b, a_signed, b_signed));
    if (OPERATION == OP_LESS) return from_bool(is_less(a, b, a_signed, b_signed));
    if (OPERATION == OP_LESS_EQUAL) return from_bool(is_less_or_equal(a, b, a_signed, b_signed));
    if (OPERATION == OP_MINIMUM) return is_nan(a) || is_less(a, b, a_signed, b_signed) ? a : b;
    if (OPERATION == OP_MAXIMUM) return is_nan(a) || is_less(b, a, b_signed, a_signed) ? a : b;
    if (OPERATION == OP_LOGICAL_AND) return from_bool(is_true(a) && is_true(b));
    if (OPERATION == OP_LOGICAL_OR) return from_bool(is_true(a) || is_true(b));
    if (OPERATION == OP_LOGICAL_XOR) return from_bool(is_true(a) != is_true(b));
    if (OPERATION == OP_LOGICAL_NOT) return from_bool(!is_true(a));
    return compute_number(a, b);
}
