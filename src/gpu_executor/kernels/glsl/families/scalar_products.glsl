// Numbers of kernels that only multiply, in families whose elements are one integer. limb_form.glsl
// includes this file.
//
// A RESIDUE is an integer that stands for its residue modulo p; nothing but products may be computed of it.
// A NUMBER is a RESIDUE, or a vector of them if ELEMENT is a vector (packed.glsl).

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

#if defined(FAMILY_MONTY31)

// A number is below p. NVIDIA's driver makes one instruction of each product of 64-bit integers, with the
// sum, and more of f_mul, whose products have two words. Chains of products run at 3.00 T/s on an NVIDIA
// H200, with the product of words31_rounds.glsl at 2.99 T/s, with f_mul at 2.36 T/s. Powers 2^29 of 2^22
// elements take 0.052, 0.058 and 0.078 ms.
#define RESIDUE uint
#define RESIDUES uvec4

void n_one(out uint z) { z = one; }
void n_from_element(uint x, out uint z) { z = x; }
void n_to_element(uint x, out uint z) { z = x; }

void n_mul(uint x, uint y, out uint z) {
    uint64_t product = uint64_t(x) * y;
    uint m = uint(product) * (0 - inverse);
    z = reduce_once(uint((product + uint64_t(m) * modulus) >> 32)); // below 2p before
}

#elif defined(FAMILY_MERSENNE31)

// A number is below p. The words of x * 2y are the digits of x * y to base 2^31, the lower one doubled.
// Chains of products run at 5.08 T/s on an NVIDIA H200, with f_mul at 3.65 T/s.
#define RESIDUE uint
#define RESIDUES uvec4

void n_one(out uint z) { z = 1; }
void n_from_element(uint x, out uint z) { z = x; }
void n_to_element(uint x, out uint z) { z = x; }

void n_mul(uint x, uint y, out uint z) {
    uint64_t product = uint64_t(x) * (y << 1);
    z = reduce_once(uint(product >> 32) + (uint(product) >> 1));
}

#elif defined(FAMILY_GOLDILOCKS)

// A number is any integer of 64 bits. Chains of products run at 1.07 T/s on an NVIDIA H200, with f_mul at
// 0.87 T/s, and with numbers below p at 0.78 T/s.
#define RESIDUE uint64_t
#define RESIDUES u64vec2

void n_one(out uint64_t z) { z = 1; }
void n_from_element(uint64_t x, out uint64_t z) { z = x; }
void n_to_element(uint64_t x, out uint64_t z) { z = min(x, x - P); }

// A product of words r is r0 - r2 - r3 + (r1 + r2) 2^32 modulo p, between -2^32 and 2^65. `above` is -1, 0 or
// 1, and counts 2^64 = 2^32 - 1. Adding that does not wrap around: if `above` is 1, the rest is at most
// 2^64 - 2^33, and if it is -1, at least 2^64 - 2^32.
void n_mul(uint64_t x, uint64_t y, out uint64_t z) {
    Product product = multiply_extended(x, y);
    uint r2 = uint(product.high), r3 = uint(product.high >> 32);
    int64_t low = int64_t(product.low & EPSILON) - int64_t(r2) - int64_t(r3);
    int64_t high = int64_t(product.low >> 32) + int64_t(r2) + (low >> 32), above = high >> 32;
    z = uint64_t((high << 32) | (low & int64_t(EPSILON))) + uint64_t(above << 32) - uint64_t(above);
}
#endif

void n_square(RESIDUE x, out RESIDUE z) { n_mul(x, x, z); }

#ifdef FAMILY_GOLDILOCKS
void square_repeatedly(uint64_t x, uint count, out uint64_t z) {
    z = x;
    [[dont_unroll]] for (uint k = 0; k < count; ++k) n_square(z, z);
}

// x^(p - 2), where p - 2 = 2^32 (2^32 - 2) + 2^32 - 1: 63 squares and 9 products. The comments count the
// bits of an exponent 2^n - 1.
void n_invert(uint64_t x, out uint64_t z) {
    uint64_t ones, six, twelve;
    n_square(x, ones);
    n_mul(ones, x, ones); // 2
    n_square(ones, z);
    n_mul(z, x, ones); // 3
    square_repeatedly(ones, 3, z);
    n_mul(z, ones, six);
    square_repeatedly(six, 6, z);
    n_mul(z, six, twelve);
    square_repeatedly(twelve, 12, z);
    n_mul(z, twelve, ones); // 24
    square_repeatedly(ones, 6, z);
    n_mul(z, six, ones); // 30
    n_square(ones, z);
    n_mul(z, x, ones); // 31
    n_square(ones, z);
    n_mul(z, x, ones); // 32
    square_repeatedly(z, 32, z);
    n_mul(z, ones, z);
}
#else
// x^(p - 2), two bits of the exponent at a time.
void n_invert(uint x, out uint z) {
    uint square, cube;
    n_square(x, square);
    n_mul(square, x, cube);
    n_one(z);
    [[dont_unroll]] for (uint shift = 32; shift > 0;) {
        shift -= 2;
        n_square(z, z);
        n_square(z, z);
        uint digit = (P - 2) >> shift & 3;
        uint factor = digit == 3 ? cube : digit == 2 ? square : x;
        if (digit > 0) n_mul(z, factor, z);
    }
}
#endif

#ifdef PACKED
void n_from_element(VECTOR x, out RESIDUES z) { EACH_COMPONENT(k) n_from_element(x[k], z[k]); }
void n_to_element(RESIDUES x, out VECTOR z) { EACH_COMPONENT(k) n_to_element(x[k], z[k]); }
void n_mul(RESIDUES x, RESIDUES y, out RESIDUES z) { EACH_COMPONENT(k) n_mul(x[k], y[k], z[k]); }
void n_square(RESIDUES x, out RESIDUES z) { EACH_COMPONENT(k) n_square(x[k], z[k]); }
void n_select(bool condition, RESIDUES x, RESIDUES y, out RESIDUES z) {
    EACH_COMPONENT(k) z[k] = condition ? x[k] : y[k];
}
#define NUMBER RESIDUES
#else
void n_select(bool condition, RESIDUE x, RESIDUE y, out RESIDUE z) { z = condition ? x : y; }
#define NUMBER RESIDUE
#endif

void n_copy(NUMBER x, out NUMBER z) { z = x; }
