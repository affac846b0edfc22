// A copy between arrays with any strides, in units of 16 bits.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require

#define TYPE uint16_t
#include "strided_copy.glsl"
