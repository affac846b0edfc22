// Floats as whole numbers in the same order, from -inf to inf, with -0.0 below 0.0.
//
// A shader may take it that no number is NaN, so minima and maxima compare these. All bits of
// negative floats are inverted, and the sign of others. NaN becomes NOT_A_NUMBER, which the
// operation defines before it includes this: the number that wins against all others.

uint from_memory(uint x) {
    if ((x & 0x7fffffffu) > 0x7f800000u) return NOT_A_NUMBER;
    return x >= 0x80000000u ? ~x : x | 0x80000000u;
}

uint to_memory(uint x) {
    if (x == NOT_A_NUMBER) return 0x7fc00000u;
    return x >= 0x80000000u ? x & 0x7fffffffu : ~x;
}
