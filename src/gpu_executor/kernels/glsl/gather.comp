// Block i of the result is block positions[i] of the source.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "unit_memory.glsl"

layout(push_constant) uniform Push { uint count; uint unit_words; uint block_units; };
UNITS_VIEWS(0, source, readonly)
layout(set = 0, binding = 1, std430) readonly buffer Positions { uint positions[]; };
UNITS_VIEWS(2, result, writeonly)

ELEMENTWISE(i) {
    uint from = positions[i / block_units] * block_units + i % block_units;
    COPY_UNIT(unit_words, result, i, source, from)
}
