// Keys with their values, moved to their places by one digit (sort_scatter.glsl).
#version 460
#extension GL_GOOGLE_include_directive : require
#define PAIRS
#include "sort_scatter.glsl"
