// A copy between arrays with any strides, in parts of words, for devices whose buffers have no smaller
// integers.
#version 460
#extension GL_GOOGLE_include_directive : require

#include "strided_copy.glsl"
