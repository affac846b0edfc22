// The Montgomery product and square on limbs of 52 bits, for devices that are fast with doubles.
// Include limbs.glsl first.
//
// The product of two limbs has 104 bits. Rounded toward zero, x * y + 2^104 keeps the upper 52 of
// them in the lowest bits of the double; taken away again, x * y less that is the lower 52, exactly.
// So two multiply-adds and a subtraction give both halves, and their bits are summed as integers,
// with the doubles' exponents among them, which are taken off at the end. On an NVIDIA H200 that is
// 62.1 G products/s at 255 bits and 27.2 at 381, where short limbs give 51.1 and 22.4.
//
// It needs fma() to round once, which Vulkan leaves open: a device is tried before it is used so.

#extension GL_EXT_shader_explicit_arithmetic_types_float64 : require

layout(constant_id = 5) const uint NEGATIVE_INVERSE = 0; // -1/p mod 2^52, the lower word
layout(constant_id = 58) const uint NEGATIVE_INVERSE_HIGH = 0;

const uint SQUARE_SHIFT = SHIFT / 2; // of multiples of 32 and 52, so nothing is left over
const uint PRODUCT_LIMBS = 2 * LIMBS;

// 2^52 and 2^104 as the bits of a double: a limb added to them stands in the lowest bits.
const uint64_t LOW_BIAS = 0x4330000000000000ul, HIGH_BIAS = 0x4670000000000000ul;

#ifndef EMULATED
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(capabilities = [4468], 4463, 64); // RoundingModeRTZ for doubles

#define FACTOR double
const double LOW_BASE = 4503599627370496.0, HIGH_BASE = 20282409603651670423947251286016.0;

double factor(uint64_t limb) {
    return uint64BitsToDouble(limb | LOW_BIAS) - LOW_BASE;
}

double modulus_factor(uint i) {
    return modulus[i];
}

// The upper half of x * y, and HIGH_BIAS.
uint64_t upper_half(double x, double y) {
    precise double high = fma(x, y, HIGH_BASE);
    return doubleBitsToUint64(high);
}

// Both halves, and their biases.
void halves(double x, double y, out uint64_t low, out uint64_t high) {
    precise double upper = fma(x, y, HIGH_BASE);
    precise double taken = (HIGH_BASE + LOW_BASE) - upper;
    precise double lower = fma(x, y, taken);
    low = doubleBitsToUint64(lower);
    high = doubleBitsToUint64(upper);
}
#else
// The same halves by integers, so that a device without such rounding can show the rest to be right.
#define FACTOR uint64_t

uint64_t factor(uint64_t limb) {
    return limb;
}

uint64_t modulus_factor(uint i) {
    return uint64_t(modulus[i]);
}

void halves(uint64_t x, uint64_t y, out uint64_t low, out uint64_t high) {
    const uint64_t half_mask = (1ul << 26) - 1ul;
    uint64_t x0 = x & half_mask, x1 = x >> 26, y0 = y & half_mask, y1 = y >> 26;
    uint64_t middle = x0 * y1 + x1 * y0;
    uint64_t below = x0 * y0 + ((middle & half_mask) << 26);
    low = (below & LIMB_MASK) + LOW_BIAS;
    high = x1 * y1 + (middle >> 26) + (below >> LIMB_BITS) + HIGH_BIAS;
}

uint64_t upper_half(uint64_t x, uint64_t y) {
    uint64_t low, high;
    halves(x, y, low, high);
    return high;
}
#endif

void factors(uint64_t x[LIMBS], out FACTOR z[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = factor(x[i]);
}

// t + x * y * 2^(52 * at), and biases.
void add_product(FACTOR x, FACTOR y, uint at, inout uint64_t t[PRODUCT_LIMBS]) {
    uint64_t low, high;
    halves(x, y, low, high);
    t[at] += low;
    t[at + 1] += high;
}

// The biases in column k of `low` lower and `high` upper halves.
uint64_t biases(uint low, uint high) {
    return low * LOW_BIAS + high * HIGH_BIAS;
}

// t / 2^(52 * LIMBS), below 2p where t is below p * 2^(52 * LIMBS): each row adds the multiple of p
// that clears the lowest limb left.
void reduce(inout uint64_t t[PRODUCT_LIMBS], out uint64_t z[LIMBS]) {
    const uint64_t negative_inverse = (uint64_t(NEGATIVE_INVERSE_HIGH) << 32) | NEGATIVE_INVERSE;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        FACTOR m = factor((t[i] * negative_inverse) & LIMB_MASK);
        // The lowest halves add up to zero or 2^52: what they carry is t / 2^52 rounded up.
        t[i + 1] += upper_half(m, modulus_factor(0)) + ((t[i] + LIMB_MASK) >> LIMB_BITS);
        [[unroll]] for (uint j = 1; j < LIMBS; ++j) add_product(m, modulus_factor(j), i + j, t);
        [[unroll]] for (uint j = 1; j <= LIMBS; ++j) t[i + j] -= biases(uint(j < LIMBS), 1);
    }
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
        bool topmost = j + 1 == LIMBS;
        z[j] = topmost ? t[LIMBS + j] : t[LIMBS + j] & LIMB_MASK;
        if (!topmost) t[LIMBS + j + 1] += t[LIMBS + j] >> LIMB_BITS;
    }
}

// x * y / 2^(52 * LIMBS), below 2p where x * y is below p * 2^(52 * LIMBS).
void product(uint64_t x[LIMBS], uint64_t y[LIMBS], out uint64_t z[LIMBS]) {
    FACTOR a[LIMBS], b[LIMBS];
    factors(x, a);
    factors(y, b);
    uint64_t t[PRODUCT_LIMBS];
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        // Of column k and the one below, as many as there are limbs i with k - i a limb too.
        t[k] = 0ul - biases(min(k + 1, 2 * LIMBS - 1 - k), min(k, 2 * LIMBS - k));
    }
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) add_product(a[i], b[j], i + j, t);
    }
    reduce(t, z);
}

// x * x / 2^(52 * LIMBS): of an element that was unpacked with SQUARE_SHIFT, the Montgomery square.
// Products of different limbs are equal in pairs: one of each, doubled.
void square(uint64_t x[LIMBS], out uint64_t z[LIMBS]) {
    FACTOR a[LIMBS];
    factors(x, a);
    uint64_t t[PRODUCT_LIMBS];
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) {
        // Pairs i < j of column k and the one below.
        t[k] = 0ul - biases(min(k + 1, 2 * LIMBS - 1 - k) / 2, min(k, 2 * LIMBS - k) / 2);
    }
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
            if (i < j) add_product(a[i], a[j], i + j, t);
        }
    }
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) t[k] += t[k] - biases(1 - k % 2, k % 2);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) add_product(a[i], a[i], 2 * i, t);
    reduce(t, z);
}
