// y[i] = x[i with its lowest log_n bits reversed], element by element.
#version 460
#extension GL_GOOGLE_include_directive : require
#define KERNEL_PUSH uint log_n;
#include "../element.glsl"

ELEMENTS_IN(0, x)
ELEMENTS_OUT(1, y)

void main() {
    EACH_ELEMENT(i) {
        uint reversed = log_n == 0 ? 0 : bitfieldReverse(i) >> (32 - log_n);
        ELEMENT element;
        load_x((i >> log_n << log_n) + reversed, element);
        store_y(i, element);
    }
}
