// The mixed additions of point_mixed.glsl on f64 limbs, at degree 1: every product is inlined, and all
// numbers are in registers. The other forms of the group law: point_group.glsl.
//
// Points in memory and the sums that are stored have the Montgomery factor of the integer limbs that
// all other curve kernels compute with: 2^d times the factor M of f64 limbs, where d = FACTOR_SHIFT is
// 0 or 1. So a product of such numbers is here 2^d times the product in those kernels. Nothing is
// converted: of a sum, ZZ / 2^d and ZZZ / 2^d are in registers, and the other factors 2^d cancel each
// other, because (4^d X, 8^d Y, 4^d ZZ, 8^d ZZZ) is the same point as (X, Y, ZZ, ZZZ).
//
// Comments state bounds in units of p, for d = 1 and M / p = 60. If x < a p and y < b p, a product is
// below (1 + a b p / M) p. Products of limbs take addends for free: multiples of p that keep
// differences positive are such addends. `kernels/curves.py` chooses primes with enough slack M / p.
//
// Include coordinate.glsl and declare CONSTANTS first.

const uint LANES = 1;
#include "lanes.glsl"
#define OPERANDS
#define PQ
void begin() {}

layout(constant_id = ID_FACTOR_SHIFT) const uint FACTOR_SHIFT = 1;
layout(constant_id = ID_STORED_LIMBS) const uint STORED_LIMBS = 9;
layout(constant_id = ID_STORED_LIMB_BITS) const uint STORED_LIMB_BITS = 29;

// The constants 2^-d and 2^d a; `kernels/curves.py` writes them in this order.
const uint SCALED_ONE = 0, SCALED_A = 1;

// The multiples of p that are added to differences: at least X, Y, and w + 2 s of add_affine.
const uint MULTIPLE_X = 7, MULTIPLE_Y = 3, MULTIPLE_SUM = 4;

// z = k p - x, without carries: limbs may be negative.
void n_subtract_from(uint k, NUMBER x, out NUMBER z) {
    NUMBER kp;
    multiple_of_modulus(k, kp);
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = kp[i] - x[i];
}

// Whether a number is 0, p, ... or most * p.
bool n_is_multiple(NUMBER x, uint most) {
    bool any = false;
    [[unroll]] for (uint k = 0; k <= most; ++k) {
        NUMBER kp;
        multiple_of_modulus(k, kp);
        LIMB different = 0;
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) different |= x[i] ^ kp[i];
        any = any || different == 0;
    }
    return any;
}

// Whether a number is 0, p or 2p; most others are told apart by their lowest bits.
bool n_is_zero_below_3p(NUMBER x) {
    uint low = uint(x[0]), p = uint(MODULUS_LIMB(0));
    if (low != 0 && low != p && low != 2 * p) return false;
    return n_is_multiple(x, 2);
}

// The XYZZ point 2 (x, y), for a y that is not 0: 4M + 3S. A doubling is an addition to (x, y, 1, 1)
// with R = 3 x^2 + a and P = 2 y, and without P^3 in X; R and P are multiplied by 2^d here. Equal
// points are rare, and their code must cost other points nothing: with operands of the additions chosen
// by a condition, an NVIDIA H200 adds 14 % fewer points, and with all numbers of a doubling in registers
// the kernel needs 255 of them instead of 168. So a loop has one product in its body, and the numbers
// are in an array with a variable index, which is in memory.
void double_affine(
    NUMBER x, NUMBER y, out NUMBER sx, out NUMBER sy, out NUMBER szz, out NUMBER szzz
) {
    const uint X = 0, MINUS_Y = 1, P = 2, R = 3, P2 = 4, P3 = 5, Q = 6, R2 = 7, S = 8, T = 9;
    const uint first[] = uint[](X, P, P, X, R, MINUS_Y, R);
    const uint second[] = uint[](X, P, P2, P2, R, P3, Q);
    const uint product[] = uint[](R, P2, P3, Q, R2, S, T);
    LIMB numbers[10 * LIMBS];
    NUMBER a, b, z;
#define LOAD(at, z) [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = numbers[(at) * LIMBS + i];
#define STORE(z, at) [[unroll]] for (uint i = 0; i < LIMBS; ++i) numbers[(at) * LIMBS + i] = z[i];
    STORE(x, X)
    n_negate(y, z);
    STORE(z, MINUS_Y)
    n_mul_add(1, y, y, z);
    n_mul_add(FACTOR_SHIFT, z, z, z);                   // 4
    STORE(z, P)
    // The number of the next step is opaque for the compiler: there is one work-group along y.
    [[dont_unroll]] for (uint step = 0; step < 7; step += gl_NumWorkGroups.y) {
        LOAD(first[step], a)
        LOAD(second[step], b)
        mul_limbs(a, b, z);
        if (product[step] == R) {
            load_constant(SCALED_A, a);
            n_mul_add(3, z, a, z);                      // 4.1
        } else if (product[step] == R2) {
            LOAD(Q, a)
            n_clear(b);
            n_mul_add(FACTOR_SHIFT, z, z, z);
            n_sub_sum(z, b, a, MULTIPLE_SUM, z);        // X; 2 * 1.3 + 4
            n_sub(a, z, MULTIPLE_X, a);                 // Q - X; 8.1
            STORE(a, Q)
        }
        STORE(z, product[step])
    }
    LOAD(R2, sx)
    LOAD(S, a)
    LOAD(T, b)
    n_mul_add(1, a, b, sy);                             // 1 + 1.6
    LOAD(P2, szz)
    LOAD(P3, szzz)
#undef LOAD
#undef STORE
}

// Adds (x, y) to the XYZZ point (sx, sy, szz, szzz): 8M + 2S, of which two products share one
// reduction. The variables are those of add_affine in point_mixed.glsl. X is below 6.6, Y below 2.6,
// ZZ / 2^d and ZZZ / 2^d are below 1.1. Returns true, and leaves the sum as it is, if both points are
// equal: the caller then calls it again with `doubles`.
bool add_affine(
    NUMBER x, NUMBER y, bool doubles,
    inout NUMBER sx, inout NUMBER sy, inout NUMBER szz, inout NUMBER szzz, inout bool infinity
) {
    if (infinity) {
        n_copy(x, sx);
        n_copy(y, sy);
        load_constant(SCALED_ONE, szz);
        load_constant(SCALED_ONE, szzz);
        infinity = false;
        return false;
    }
    if (doubles) {
        infinity = n_is_multiple(y, 1);
        double_affine(x, y, sx, sy, szz, szzz);
        return false;
    }
    NUMBER addend, r, s, t, u, v, w;
    n_subtract_from(MULTIPLE_Y, sy, addend);
    mul_plus_limbs(y, szzz, addend, r);                 // 4.1; R
    n_subtract_from(MULTIPLE_X, sx, addend);
    mul_plus_limbs(x, szz, addend, u);                  // 8.1; P
    square_limbs(u, v);                                 // 2.1
    if (n_is_zero_below_3p(v)) {
        bool equal = n_is_multiple(r, 4);
        infinity = !equal;
        return equal;
    }
    mul_limbs(sx, v, s);                                // 1.3
    mul_limbs(szz, v, szz);
    mul_limbs(u, v, w);                                 // 1.3
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) addend[i] = w[i] + 2 * s[i];
    n_subtract_from(MULTIPLE_SUM, addend, addend);
    square_plus_limbs(r, FACTOR_SHIFT, addend, sx);     // 2 * 1.3 + 4
    n_sub(s, sx, MULTIPLE_X, t);                        // 8.3
    multiple_of_modulus(1, addend);
    mul_sub_limbs(r, t, sy, w, addend, sy);             // 1 + 0.6 + 1
    mul_limbs(szzz, w, szzz);
    return false;
}

#define AFFINE_IN(at, name) ELEMENTS_IN(at, name##_number)                                    \
    bool load_##name(uint index, bool negative, out NUMBER limbs_x, out NUMBER limbs_y) {     \
        uint x[WORDS], y[WORDS], any = 0;                                                     \
        load_##name##_number(2 * index, x);                                                   \
        load_##name##_number(2 * index + 1, y);                                               \
        [[unroll]] for (uint i = 0; i < WORDS; ++i) any |= x[i] | y[i];                       \
        words_to_limbs(x, 0, limbs_x);                                                        \
        words_to_limbs(y, 0, limbs_y);                                                        \
        if (negative) n_negate(limbs_y, limbs_y);                                             \
        return any != 0;                                                                      \
    }

// x * 2^shift in the limbs of other kernels. There X is below 8p and Y below 4p, and ZZ and ZZZ are below
// 2p or, from here, below 2.2p: other kernels multiply these by numbers below 10p, and nothing else.
void to_stored_limbs(NUMBER x, uint shift, out uint z[STORED_LIMBS]) {
    const uint mask = (1u << STORED_LIMB_BITS) - 1;
    [[unroll]] for (uint i = 0; i < STORED_LIMBS; ++i) {
        int bit = int(i * STORED_LIMB_BITS) - int(shift);
        uint begin = bit < 0 ? 0 : uint(bit), limb = begin / LIMB_BITS, offset = begin % LIMB_BITS;
        uint64_t bits = limb < LIMBS ? x[limb] >> offset : 0ul;
        if (limb + 1 < LIMBS && offset > 0) bits |= x[limb + 1] << (LIMB_BITS - offset);
        z[i] = uint(bit < 0 ? bits << -bit : bits) & mask;
    }
}

#define LIMBS_OUT(at, name)                                                                   \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { uvec4 name[]; };   \
    void store_##name(uint index, NUMBER x, NUMBER y, NUMBER zz, NUMBER zzz, bool infinity) { \
        if (infinity) {                                                                       \
            n_clear(x);                                                                       \
            n_clear(y);                                                                       \
            n_clear(zz);                                                                      \
            n_clear(zzz);                                                                     \
        }                                                                                     \
        uint a[STORED_LIMBS], b[STORED_LIMBS], c[STORED_LIMBS], d[STORED_LIMBS];              \
        to_stored_limbs(x, 0, a);                                                             \
        to_stored_limbs(y, 0, b);                                                             \
        to_stored_limbs(zz, FACTOR_SHIFT, c);                                                 \
        to_stored_limbs(zzz, FACTOR_SHIFT, d);                                                \
        [[unroll]] for (uint i = 0; i < STORED_LIMBS; ++i) {                                  \
            name[index * STORED_LIMBS + i] = uvec4(a[i], b[i], c[i], d[i]);                   \
        }                                                                                     \
    }
