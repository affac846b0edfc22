// A copy between arrays with any strides, in units of 32 bits.
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE uint
#include "strided_copy.glsl"
