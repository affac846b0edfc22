// Elements converted to another type, as C does it: integers lose high bits, floats are rounded to
// the nearest value, of two to the even one, and numbers that become integers lose their fraction.
// Integer arithmetic alone, so that results are the same on every device, and no device needs the
// types.
//
// A number is sign, magnitude * 2^exponent. With LONG the magnitude has 64 bits, which 64-bit types
// need.
#version 460
#extension GL_GOOGLE_include_directive : require
#ifdef LONG
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#endif
#include "../grid.glsl"
#include "elements.glsl"
#include "strides.glsl"

layout(constant_id = ID_A_TYPE) const uint A_TYPE = TYPE_UINT32;

layout(push_constant) uniform Push { uint count; uint elements; uint lengths[4]; OPERAND(a) };
layout(set = 0, binding = 0, std430) readonly buffer A { uint a_words[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Result { uint result[]; };

DEFINE_LOAD(a, a_words, A_TYPE)

#ifdef LONG
#define NUMBER uint64_t
#define NUMBER_BITS 64
NUMBER join(uvec2 words) { return join_words(words); }
uvec2 split(NUMBER x) { return split_words(x); }
int find_top_bit(NUMBER x) {
    uvec2 words = split(x);
    return words.y != 0 ? 32 + findMSB(words.y) : findMSB(words.x);
}
#else
#define NUMBER uint
#define NUMBER_BITS 32
NUMBER join(uvec2 words) { return words.x; }
uvec2 split(NUMBER x) { return uvec2(x, 0); }
int find_top_bit(NUMBER x) { return findMSB(x); }
#endif
const NUMBER SIGN_BIT = NUMBER(1) << (NUMBER_BITS - 1);
const int NOT_FINITE = 0x10000;  // an exponent: infinite if the magnitude is 0, else NaN

int count_mantissa_bits(uint type) {
    return type == TYPE_FLOAT16 ? 10 : type == TYPE_FLOAT32 ? 23 : 52;
}

int get_max_exponent(uint type) {
    return type == TYPE_FLOAT16 ? 31 : type == TYPE_FLOAT32 ? 255 : 2047;
}

void decode(uvec2 words, out bool negative, out NUMBER magnitude, out int exponent) {
    if (!is_float(A_TYPE)) {
        uint low = widen(words.x, A_TYPE);
        bool is_wide = count_bytes(A_TYPE) == 8;
        uint high = is_wide ? words.y : 0;
        negative = is_signed(A_TYPE) && (is_wide ? high : low) >> 31 != 0;
        if (negative && !is_wide) high = 0xffffffffu;
        NUMBER x = join(uvec2(low, high));
        magnitude = negative ? ~x + NUMBER(1) : x;
        exponent = 0;
        return;
    }
    int mantissa_bits = count_mantissa_bits(A_TYPE), most = get_max_exponent(A_TYPE);
    uint bits = count_bytes(A_TYPE) * 8;
    NUMBER x = join(words);
    negative = ((x >> (bits - 1)) & NUMBER(1)) != NUMBER(0);
    int field = int(uint(x >> mantissa_bits)) & most;
    magnitude = x & ((NUMBER(1) << mantissa_bits) - NUMBER(1));
    if (field != 0 && field != most) magnitude |= NUMBER(1) << mantissa_bits;
    exponent = field == most ? NOT_FINITE : max(field, 1) - (most >> 1) - mantissa_bits;
}

NUMBER encode_integer(bool negative, NUMBER magnitude, int exponent) {
    NUMBER x = NUMBER(0);
    if (exponent >= 0 && exponent < NUMBER_BITS) x = magnitude << uint(exponent);
    if (exponent < 0 && exponent > -NUMBER_BITS) x = magnitude >> uint(-exponent);
    return negative ? ~x + NUMBER(1) : x;
}

NUMBER encode_float(bool negative, NUMBER magnitude, int exponent) {
    int mantissa_bits = count_mantissa_bits(RESULT_TYPE);
    int most = get_max_exponent(RESULT_TYPE), bias = most >> 1;
    NUMBER infinite = NUMBER(most) << mantissa_bits;
    NUMBER sign = negative ? NUMBER(1) << (count_bytes(RESULT_TYPE) * 8 - 1) : NUMBER(0);
    if (exponent == NOT_FINITE) {
        NUMBER quiet = NUMBER(1) << (mantissa_bits - 1);
        return sign | infinite | (magnitude != NUMBER(0) ? quiet : NUMBER(0));
    }
    if (magnitude == NUMBER(0)) return sign;
    int top = find_top_bit(magnitude) + exponent;
    if (top > bias) return sign | infinite;
    int least = max(top, 1 - bias);  // the exponent of the result; of subnormal numbers it is fixed
    int shift = least - mantissa_bits - exponent;
    NUMBER kept;
    if (shift <= 0) {
        kept = magnitude << uint(-shift);
    } else if (shift > NUMBER_BITS) {
        kept = NUMBER(0);
    } else {
        // By two shifts, since one cannot shift all bits out.
        kept = (magnitude >> uint(shift - 1)) >> 1;
        bool above = ((magnitude >> uint(shift - 1)) & NUMBER(1)) != NUMBER(0);
        bool more = (magnitude & ((NUMBER(1) << uint(shift - 1)) - NUMBER(1))) != NUMBER(0);
        if (above && (more || (kept & NUMBER(1)) != NUMBER(0))) kept += NUMBER(1);
    }
    // A carry out of the mantissa goes to the exponent, and out of the largest number to infinity.
    return sign | (NUMBER(uint(least + bias - 1)) << mantissa_bits) + kept;
}

uvec2 cast_element(uint i) {
    uint from = locate(unravel(i, VECTOR(lengths)), a_start, VECTOR(a_strides));
    bool negative;
    NUMBER magnitude;
    int exponent;
    uvec2 words = uvec2(a_low(from), count_bytes(A_TYPE) == 8 ? a_high(from) : 0);
    decode(words, negative, magnitude, exponent);
    if (RESULT_TYPE == TYPE_BOOL) {
        return uvec2(exponent == NOT_FINITE || magnitude != NUMBER(0) ? 1 : 0, 0);
    }
    if (is_float(RESULT_TYPE)) return split(encode_float(negative, magnitude, exponent));
    return split(encode_integer(negative, magnitude, exponent));
}

WRITE_ELEMENTS(result, cast_element)
