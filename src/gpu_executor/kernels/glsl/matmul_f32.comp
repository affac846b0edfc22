// c = a @ b
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE float
#include "matmul.glsl"
