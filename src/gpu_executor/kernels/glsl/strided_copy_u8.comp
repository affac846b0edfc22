// A copy between arrays with any strides, in units of 8 bits.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require

#define TYPE uint8_t
#include "strided_copy.glsl"
