// The sum.
#version 460
#extension GL_GOOGLE_include_directive : require

#define TYPE float
// The identity of float addition is -0.0: adding 0.0 would turn -0.0 into 0.0.
float identity() { return uintBitsToFloat(0x80000000u); }
float combine(float x, float y) {
    precise float sum = x + y;
    return sum;
}
float from_memory(float x) { return x; }
float to_memory(float x) { return x; }
uint to_bits(float x) { return floatBitsToUint(x); }
float from_bits(uint x) { return uintBitsToFloat(x); }

#include "reduce.glsl"
