// A map from floats to unsigned integers that keeps their order: -inf, ..., -0.0, 0.0, ..., inf.
//
// A compiler may assume that no float is NaN, so minima and maxima compare these integers instead.
// The map inverts all bits of negative floats and the sign bit of the others. NaN becomes
// NOT_A_NUMBER, which the operation defines before including this file: the integer that wins every
// comparison.

uint from_memory(uint x) {
    // Without branches: with them, the loads of a reduction wait for each other.
    uint ordered = x ^ (uint(int(x) >> 31) | 0x80000000u);
    return (x & 0x7fffffffu) > 0x7f800000u ? NOT_A_NUMBER : ordered;
}

uint to_memory(uint x) {
    if (x == NOT_A_NUMBER) return 0x7fc00000u;
    return x >= 0x80000000u ? x & 0x7fffffffu : ~x;
}
