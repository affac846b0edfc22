// The push constants of kernels for primes of several words: the number of elements, the modulus,
// and the kernel's own members (KERNEL_PUSH). 128 bytes in all, which every Vulkan device has.
//
// The modulus is up to 24 words or 26 short limbs; with F64_LIMBS, up to 12 limbs as float64, so
// that a kernel need not convert them.

#ifdef F64_LIMBS
layout(push_constant) uniform Push { uint count; double modulus[12]; KERNEL_PUSH };
#else
layout(push_constant) uniform Push { uint count; uint modulus[26]; KERNEL_PUSH };
#endif
