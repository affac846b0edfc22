// The maximum of each block of 4096 elements, NaN if any of them is.
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE uint
#define NOT_A_NUMBER 0xffffffffu
uint identity() { return 0u; }
uint combine(uint x, uint y) { return max(x, y); }

#include "ordered_floats.glsl"
#include "reduce.glsl"
