// c = a @ b, modulo 2^32
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE uint
#define TYPE4 uvec4
#define to_bits(x) x
#define from_bits(x) x
#include "matmul.glsl"
