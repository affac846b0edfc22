// Block positions[i] of the result becomes block i of the values, which are repeated after
// value_units units. The host gives SKIPPED for a block whose position comes again later.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "unit_memory.glsl"

const uint SKIPPED = 0xffffffff;

layout(push_constant) uniform Push {
    uint count; uint unit_words; uint block_units; uint value_units;
};
UNITS_VIEWS(0, values, readonly)
layout(set = 0, binding = 1, std430) readonly buffer Positions { uint positions[]; };
UNITS_VIEWS(2, result, writeonly)

ELEMENTWISE(i) {
    uint position = positions[i / block_units];
    if (position == SKIPPED) return;
    COPY_UNIT(unit_words, result, position * block_units + i % block_units, values, i % value_units)
}
