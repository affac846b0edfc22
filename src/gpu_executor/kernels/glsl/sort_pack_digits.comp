// The first pass of a sort of signed digits by their buckets (sort_packed.glsl).
#version 460
#extension GL_GOOGLE_include_directive : require
#define PACKED
#define PACKS
#include "sort_scatter.glsl"
