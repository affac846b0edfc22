// The push constants of a kernel with a sponge (sponge.glsl). Include this file before element.glsl.

#define PRODUCTS
#define LIMB_FORM
#define KERNEL_PUSH uint row_length; uint rate; uint sponge_layout; uint blocks; uint outputs;
