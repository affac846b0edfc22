// Rounds of butterflies of Goldilocks elements. 2 is of order 192 modulo p, so roots of order 8 are
// powers of 2, and products with them are shifts. A round is a transform of RADIX elements without
// products, and a product with a root for each element but the first.
//
// With W of order RADIX 2^s, the butterflies of an invocation have roots of order RADIX times powers of
// W^base, where `base` is the first row modulo the stride 2^s. The powers of W^base that element j
// meets have the product W^(base rev(j)).
//
// transform_rounds.glsl includes this file.

// log2 of the root of order 8.
layout(constant_id = ID_ROOT_SHIFT) const uint ROOT_SHIFT = 0;

// x * 2^shift for a constant shift below 96, with 2^64 = 2^32 - 1 and 2^96 = -1.
uint64_t mul_power_of_two(uint64_t x, uint shift) {
    uint bits = shift & 31;
    uint64_t low = uint64_t(uint(x) << bits), middle = (x >> (32 - bits)) & EPSILON;
    uint64_t high = x >> 32 >> (32 - bits), z;
    if (shift < 32) { // low + middle * 2^32 + high * 2^64
        f_add(low | (middle << 32), (high << 32) - high, z);
    } else if (shift < 64) { // low * 2^32 + middle * 2^64 + high * 2^96
        uint64_t outer;
        f_sub(low << 32, high, outer);
        f_add(outer, (middle << 32) - middle, z);
    } else { // low * 2^64 + middle * 2^96 + high * 2^128
        f_sub((low << 32) - low, middle | (high << 32), z);
    }
    return z;
}

void mul_by_factor(uint64_t x, uint64_t y, out uint64_t z) { f_mul(x, y, z); }

// A butterfly whose root is 2^shift, with the product behind the difference.
void butterfly_dif(uint shift, inout uint64_t u, inout uint64_t v) {
    uint64_t sum, difference;
    f_add(u, v, sum);
    if (shift < 96) f_sub(u, v, difference);
    else f_sub(v, u, difference);
    u = sum;
    v = shift % 96 == 0 ? difference : mul_power_of_two(difference, shift % 96);
}

// The same with the product before the sum.
void butterfly_dit(uint shift, inout uint64_t u, inout uint64_t v) {
    uint64_t product = shift % 96 == 0 ? v : mul_power_of_two(v, shift % 96), sum, difference;
    f_add(u, product, sum);
    f_sub(u, product, difference);
    u = shift < 96 ? sum : difference;
    v = shift < 96 ? difference : sum;
}

// Butterfly j of a level: the register of its first element, and log2 of its root.
#define FIRST(j, level) (((j >> level) << (level + 1)) + (j & ((1 << level) - 1)))
#define SHIFT(j, level) ((ROOT_SHIFT * (4u >> level) * (j & ((1u << level) - 1u))) % 192u)
#define BUTTERFLY(run, j, level) \
    run(SHIFT(j, level), x[FIRST(j, level)], x[FIRST(j, level) + (1 << level)]);
#define RUN_LEVEL(run, level)                                                                   \
    if (level < count_levels(round)) {                                                          \
        BUTTERFLY(run, 0, level)                                                                \
        if (RADIX > 2) { BUTTERFLY(run, 1, level) }                                             \
        if (RADIX > 4) { BUTTERFLY(run, 2, level) BUTTERFLY(run, 3, level) }                    \
    }

// The roots are read from memory, which means from caches. A copy in shared memory would be read once in
// each round but one, and would cost a barrier and 2^LEVELS elements of shared memory. 2^22 elements took
// 0.148 ms instead of 0.150 ms on an NVIDIA H200 in passes of 6, 6, 5, 5 levels; in passes of 6, 7, 9
// levels 0.139 ms instead of 0.146 ms, with a table in the order of the reads.
void load_roots() {}
void wait_for_roots() {}

void multiply_by_roots(uint i, uint round, inout uint64_t x[8]) {
    uint s = log_stride(round), base = first_row(i, round) & ((1u << s) - 1u);
    uint step = base << (LEVELS - LOG_RADIX - s);
#define MULTIPLY(j)                                                                             \
    if (j > 0) {                                                                                \
        uint64_t root;                                                                          \
        load_root(step * reverse_bits(j, LOG_RADIX), root);                                     \
        f_mul(x[j], root, x[j]);                                                                \
    }
    EACH_REGISTER(MULTIPLY)
#undef MULTIPLY
}

void run_round(uint i, uint round, bool in_time, inout uint64_t x[8]) {
    if (in_time) {
        if (round < LAST) multiply_by_roots(i, round, x);
        RUN_LEVEL(butterfly_dit, 0) RUN_LEVEL(butterfly_dit, 1) RUN_LEVEL(butterfly_dit, 2)
    } else {
        RUN_LEVEL(butterfly_dif, 2) RUN_LEVEL(butterfly_dif, 1) RUN_LEVEL(butterfly_dif, 0)
        if (round < LAST) multiply_by_roots(i, round, x);
    }
}
