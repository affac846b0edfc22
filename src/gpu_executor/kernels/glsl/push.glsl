// What a kernel is told: the number of elements, the modulus of a prime of several words, and what
// KERNEL_PUSH has behind it; within the 128 bytes of push constants that every Vulkan device has.
//
// The modulus has up to 24 words or 26 short limbs, or with DOUBLES up to 12 limbs as doubles, which
// then need not be made of anything.

#ifdef DOUBLES
layout(push_constant) uniform Push { uint count; double modulus[12]; KERNEL_PUSH };
#else
layout(push_constant) uniform Push { uint count; uint modulus[26]; KERNEL_PUSH };
#endif
