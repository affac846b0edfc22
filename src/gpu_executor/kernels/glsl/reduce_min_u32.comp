// The minimum.
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE uint
uint identity() { return 0xffffffffu; }
uint combine(uint x, uint y) { return min(x, y); }
uint from_memory(uint x) { return x; }
uint to_memory(uint x) { return x; }
uint to_bits(uint x) { return x; }
uint from_bits(uint x) { return x; }

#include "reduce.glsl"
