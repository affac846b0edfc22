// result[i] = 1 where a[i] = b[i], else 0
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint b_period;
#include "../element.glsl"
#include "../broadcast.glsl"

ELEMENTS_IN(0, a)
ELEMENTS_IN(1, b)
layout(set = 0, binding = 2, std430) writeonly buffer Result { uint result[]; };

ELEMENTWISE(i) {
    ELEMENT a, b;
    load_a(i, a);
    load_b(broadcast_index(i, b_period), b);
    result[i] = uint(f_equal(a, b));
}
