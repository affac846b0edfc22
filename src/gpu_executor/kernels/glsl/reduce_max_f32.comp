// The maximum; NaN if any element is.
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE uint
#define NOT_A_NUMBER 0xffffffffu
uint identity() { return 0u; }
uint combine(uint x, uint y) { return max(x, y); }
uint to_bits(uint x) { return x; }
uint from_bits(uint x) { return x; }

#include "ordered_floats.glsl"
#include "reduce.glsl"
