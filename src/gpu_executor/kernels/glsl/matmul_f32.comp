// c = a @ b
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE float
#define TYPE4 vec4
#define to_bits floatBitsToUint
#define from_bits uintBitsToFloat
#include "matmul.glsl"
