// The Montgomery product and square on f64 limbs: limbs of 52 bits, multiplied as float64. For
// devices with fast float64 units. Include limbs.glsl first.
//
// The product of two limbs has 104 bits. fma(x, y, 2^104), rounded toward zero, has the upper 52
// bits of the product in the lowest bits of its mantissa. Subtracting that upper half from x * y in
// a second fma leaves the lower 52 bits, exactly. So two fma and a subtraction give both halves of
// a product. The halves are summed as integers, by the bit patterns of their floats. Each pattern
// contains an exponent (its bias); the sum of all biases of a column is a constant, with which the
// column begins.
//
// With L limbs, a Montgomery product is 2 L^2 products of limbs, L of them upper halves only, and L
// 64-bit integer products; a square is 3 L^2 / 2 + L / 2 products of limbs. On an NVIDIA H200, in
// chains: 63.8 G products/s at 255 bits and 27.6 at 381, where short limbs (products.glsl) give 50.3
// and 22.8; 80.6 G squares/s at 255 bits and 34.2 at 381 (short limbs: 64.6 and 29.1).
//
// Exactness requires that fma() rounds once, which Vulkan does not guarantee: the executor compares
// results on a device before it uses these kernels there.

#extension GL_EXT_shader_explicit_arithmetic_types_float64 : require

#include "spec_ids.glsl"

// The lower and the upper word of -1/p mod 2^52.
layout(constant_id = ID_NEGATIVE_INVERSE) const uint NEGATIVE_INVERSE = 0;
layout(constant_id = ID_NEGATIVE_INVERSE_HIGH) const uint NEGATIVE_INVERSE_HIGH = 0;

const uint SQUARE_SHIFT = SHIFT / 2; // SHIFT is even: 52 * LIMBS - 32 * WORDS
const uint PRODUCT_LIMBS = 2 * LIMBS;

// The bit patterns of the floats 2^52 and 2^104: a limb added to them is in the lowest bits.
const uint64_t LOW_BIAS = 0x4330000000000000ul, HIGH_BIAS = 0x4670000000000000ul;

#ifndef EMULATED
#extension GL_EXT_spirv_intrinsics : require
spirv_execution_mode(capabilities = [4468], 4463, 64); // RoundingModeRTZ for float64

#define FACTOR double
const double LOW_BASE = 4503599627370496.0, HIGH_BASE = 20282409603651670423947251286016.0;

double to_factor(uint64_t limb) {
    return uint64BitsToDouble(limb | LOW_BIAS) - LOW_BASE;
}

double modulus_factor(uint i) {
    return MODULUS_F64(i);
}

// The upper half of x * y, plus HIGH_BIAS.
uint64_t mul_upper_half(double x, double y) {
    precise double high = fma(x, y, HIGH_BASE);
    return doubleBitsToUint64(high);
}

// Both halves of x * y, plus LOW_BIAS and HIGH_BIAS.
void mul_halves(double x, double y, out uint64_t low, out uint64_t high) {
    precise double upper = fma(x, y, HIGH_BASE);
    precise double minus_upper = (HIGH_BASE + LOW_BASE) - upper;
    precise double lower = fma(x, y, minus_upper);
    low = doubleBitsToUint64(lower);
    high = doubleBitsToUint64(upper);
}
#else
// The same halves computed with integers, for devices without round-toward-zero for float64. With
// this, tests of everything but the rounding run on such devices.
#define FACTOR uint64_t

uint64_t to_factor(uint64_t limb) {
    return limb;
}

uint64_t modulus_factor(uint i) {
    return uint64_t(MODULUS_F64(i));
}

void mul_halves(uint64_t x, uint64_t y, out uint64_t low, out uint64_t high) {
    const uint64_t half_mask = (1ul << 26) - 1ul;
    uint64_t x0 = x & half_mask, x1 = x >> 26, y0 = y & half_mask, y1 = y >> 26;
    uint64_t middle = x0 * y1 + x1 * y0;
    uint64_t below = x0 * y0 + ((middle & half_mask) << 26);
    low = (below & LIMB_MASK) + LOW_BIAS;
    high = x1 * y1 + (middle >> 26) + (below >> LIMB_BITS) + HIGH_BIAS;
}

uint64_t mul_upper_half(uint64_t x, uint64_t y) {
    uint64_t low, high;
    mul_halves(x, y, low, high);
    return high;
}
#endif

void to_factors(uint64_t x[LIMBS], out FACTOR z[LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = to_factor(x[i]);
}

// t += x * y * 2^(52 * at), plus the biases of one lower and one upper half.
void add_product(FACTOR x, FACTOR y, uint at, inout uint64_t t[PRODUCT_LIMBS]) {
    uint64_t low, high;
    mul_halves(x, y, low, high);
    t[at] += low;
    t[at + 1] += high;
}

// What a column carries into the next one.
uint64_t carry_of(uint64_t column) {
    return uint64_t(int64_t(column) >> LIMB_BITS);
}

uint64_t negative_inverse() {
    return (uint64_t(NEGATIVE_INVERSE_HIGH) << 32) | NEGATIVE_INVERSE;
}

// The value with which column k of a Montgomery product begins.
//
// A column has the lower halves of the pairs i + j = k and the upper halves of the pairs
// i + j = k - 1: once for each of `products` products, and once for m * p. Of m * p, the lower halves
// of the pairs j = 0 are not computed. The biases of all these halves are subtracted here.
//
// The columns that the reduction clears are too large by 2^52 - 1, so that t >> 52 is rounded up.
// Squares gain 3 % (255 bits) and 4 % (381 bits) from that, and 9 % and 4 % from biases that are not
// subtracted row by row.
uint64_t begin_column(uint k, uint products) {
    uint low = (products + 1) * min(k + 1, 2 * LIMBS - 1 - k) - uint(k < LIMBS);
    uint high = (products + 1) * min(k, 2 * LIMBS - k);
    return (k < LIMBS ? LIMB_MASK : 0ul) - (low * LOW_BIAS + high * HIGH_BIAS);
}

// Montgomery reduction: the upper columns become t / 2^(52 * LIMBS) mod p. Each row adds the multiple
// of p that clears the lowest limb that is not yet zero. The columns of t include begin_column; they
// may be negative.
void reduce_columns(inout uint64_t t[PRODUCT_LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        // The column is t[i] + 1 mod 2^52. Biases are multiples of 2^52.
        FACTOR m = to_factor((t[i] * negative_inverse() + negative_inverse()) & LIMB_MASK);
        // The column plus the lower half of m * p[0] is a multiple of 2^52, so their carry is the
        // column / 2^52 rounded up. The lower half need not be computed.
        t[i + 1] += mul_upper_half(m, modulus_factor(0)) + carry_of(t[i]);
        [[unroll]] for (uint j = 1; j < LIMBS; ++j) add_product(m, modulus_factor(j), i + j, t);
    }
}

// The limbs of the upper columns.
void carry_columns(inout uint64_t t[PRODUCT_LIMBS], out uint64_t z[LIMBS]) {
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
        bool topmost = j + 1 == LIMBS;
        z[j] = topmost ? t[LIMBS + j] : t[LIMBS + j] & LIMB_MASK;
        if (!topmost) t[LIMBS + j + 1] += carry_of(t[LIMBS + j]);
    }
}

// t / 2^(52 * LIMBS) mod p, below 2p if t is below p * 2^(52 * LIMBS).
void reduce_limbs(inout uint64_t t[PRODUCT_LIMBS], out uint64_t z[LIMBS]) {
    reduce_columns(t);
    carry_columns(t, z);
}

void add_products(FACTOR a[LIMBS], FACTOR b[LIMBS], inout uint64_t t[PRODUCT_LIMBS]) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) add_product(a[i], b[j], i + j, t);
    }
}

void begin_columns(uint products, out uint64_t t[PRODUCT_LIMBS]) {
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) t[k] = begin_column(k, products);
}

// x * y / 2^(52 * LIMBS) mod p, below 2p if x * y is below p * 2^(52 * LIMBS).
void mul_limbs(uint64_t x[LIMBS], uint64_t y[LIMBS], out uint64_t z[LIMBS]) {
    FACTOR a[LIMBS], b[LIMBS];
    to_factors(x, a);
    to_factors(y, b);
    uint64_t t[PRODUCT_LIMBS];
    begin_columns(1, t);
    add_products(a, b, t);
    reduce_limbs(t, z);
}

// The columns of x * x. Products of different limbs occur twice: each is computed once and doubled, so
// a square is LIMBS * (LIMBS + 1) / 2 products of limbs before the reduction.
void begin_square(uint64_t x[LIMBS], out uint64_t t[PRODUCT_LIMBS]) {
    FACTOR a[LIMBS];
    to_factors(x, a);
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) t[k] = 0ul;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
            if (i < j) add_product(a[i], a[j], i + j, t);
        }
    }
    // The biases are doubled too, so a square has those of a product.
    [[unroll]] for (uint k = 0; k < 2 * LIMBS; ++k) t[k] += t[k] + begin_column(k, 1);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) add_product(a[i], a[i], 2 * i, t);
}

// x * x / 2^(52 * LIMBS) mod p: the Montgomery square of an element that words_to_limbs shifted by
// SQUARE_SHIFT.
void square_limbs(uint64_t x[LIMBS], out uint64_t z[LIMBS]) {
    uint64_t t[PRODUCT_LIMBS];
    begin_square(x, t);
    reduce_limbs(t, z);
}

#ifdef LIMB_FORM
// x * y / 2^(52 * LIMBS) mod p plus an addend, whose limbs may be negative. The addend costs no carries
// of its own.
void mul_plus_limbs(
    uint64_t x[LIMBS], uint64_t y[LIMBS], uint64_t addend[LIMBS], out uint64_t z[LIMBS]
) {
    FACTOR a[LIMBS], b[LIMBS];
    to_factors(x, a);
    to_factors(y, b);
    uint64_t t[PRODUCT_LIMBS];
    begin_columns(1, t);
    add_products(a, b, t);
    reduce_columns(t);
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[LIMBS + j] += addend[j];
    carry_columns(t, z);
}

// 2^shift times x * x / 2^(52 * LIMBS) mod p, plus an addend.
void square_plus_limbs(
    uint64_t x[LIMBS], uint shift, uint64_t addend[LIMBS], out uint64_t z[LIMBS]
) {
    uint64_t t[PRODUCT_LIMBS];
    begin_square(x, t);
    reduce_columns(t);
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
        t[LIMBS + j] = (t[LIMBS + j] << shift) + addend[j];
    }
    carry_columns(t, z);
}

// (a * b - c * d) / 2^(52 * LIMBS) mod p plus an addend: two products and one reduction.
void mul_sub_limbs(
    uint64_t a[LIMBS], uint64_t b[LIMBS], uint64_t c[LIMBS], uint64_t d[LIMBS],
    uint64_t addend[LIMBS], out uint64_t z[LIMBS]
) {
    FACTOR e[LIMBS], f[LIMBS], g[LIMBS], h[LIMBS];
    to_factors(a, e);
    to_factors(b, f);
    to_factors(c, g);
    to_factors(d, h);
    uint64_t t[PRODUCT_LIMBS];
    begin_columns(0, t); // the biases of both products cancel each other
    add_products(e, f, t);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        [[unroll]] for (uint j = 0; j < LIMBS; ++j) {
            uint64_t low, high;
            mul_halves(g[i], h[j], low, high);
            t[i + j] -= low;
            t[i + j + 1] -= high;
        }
    }
    reduce_columns(t);
    [[unroll]] for (uint j = 0; j < LIMBS; ++j) t[LIMBS + j] += addend[j];
    carry_columns(t, z);
}
#endif
