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

// Both operands are loaded: a branch would save a load only if adjacent conditions agree.
ELEMENTWISE(i) {
    ELEMENT a, b, selected;
    load_a(broadcast_index(i, a_period), a);
    load_b(broadcast_index(i, b_period), b);
    f_select(condition[i] != 0, a, b, selected);
    store_result(i, selected);
}
