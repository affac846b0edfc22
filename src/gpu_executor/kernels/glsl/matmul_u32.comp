// c = a @ b, modulo 2^32
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE uint
#include "matmul.glsl"
