// result[i] = a[i] where condition[i] is not 0, else b[i]
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint a_period; uint b_period;
#include "../element.glsl"
#include "../broadcast.glsl"

layout(set = 0, binding = 0, std430) readonly buffer Condition { uint condition[]; };
ELEMENTS_IN(1, a)
ELEMENTS_IN(2, b)
ELEMENTS_OUT(3, result)

// Both operands are read: a branch would save that only where neighbours agree.
ELEMENTWISE(i) {
    ELEMENT a, b, chosen;
    load_a(met_by(i, a_period), a);
    load_b(met_by(i, b_period), b);
    f_choose(condition[i] != 0, a, b, chosen);
    store_result(i, chosen);
}
