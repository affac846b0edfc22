// The positions of the first element of each run of equal keys, and behind its last. A key is below
// the length of `starts` and `ends`, or NO_KEY. Runs that are not there keep what is in the arrays.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "grid.glsl"
#include "bucket_keys.glsl"

layout(push_constant) uniform Push { uint count; };
layout(set = 0, binding = 0, std430) readonly buffer Keys { uint keys[]; };
layout(set = 0, binding = 1, std430) writeonly buffer Starts { uint starts[]; };
layout(set = 0, binding = 2, std430) writeonly buffer Ends { uint ends[]; };

ELEMENTWISE(i) {
    uint key = keys[i];
    if (key != NO_KEY) {
        if (i == 0 || keys[i - 1] != key) starts[key] = i;
        if (i + 1 == count || keys[i + 1] != key) ends[key] = i + 1;
    }
}
