// Additions of XYZZ points on f64 limbs by single invocations, at degree 1: every product is inlined. The
// factors of numbers are those of point_mixed_f64.glsl: ZZ / 2^d and ZZZ / 2^d of a point are in registers.
//
// Comments state bounds in units of p, for d = 1 and M / p = 60. In memory X is below 8 and Y below 4. ZZ and ZZZ
// are below 2.2 + k where a point was copied by these kernels k times: halving may add p / 2. Here k is at
// most 3, and other kernels multiply ZZ and ZZZ by numbers below 10p, with a slack of 100.
//
// Include coordinate.glsl and declare CONSTANTS first.

#include "point_mixed_f64.glsl"

// The multiples of p that are added to differences: at least U1 and S1 of add_full, and the X of a doubling.
const uint MULTIPLE_FIRST = 2, MULTIPLE_DOUBLE = 8;

// The limbs of other kernels, as 52-bit limbs.
void from_stored_limbs(uint x[STORED_LIMBS], out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        uint first = i * LIMB_BITS / STORED_LIMB_BITS;
        uint64_t bits = uint64_t(x[first]) >> (i * LIMB_BITS - first * STORED_LIMB_BITS);
        [[unroll]] for (uint j = 1; j < 4; ++j) {
            uint shift = (first + j) * STORED_LIMB_BITS - i * LIMB_BITS;
            if (first + j < STORED_LIMBS && shift < LIMB_BITS) {
                bits |= uint64_t(x[first + j]) << shift;
            }
        }
        z[i] = bits & LIMB_MASK;
    }
}

// x / 2 modulo p.
void n_halve(inout NUMBER x) {
    uint64_t odd = 0ul - (x[0] & 1ul), carry = 0ul;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        carry += x[i] + (MODULUS_LIMB(i) & odd);
        x[i] = carry & LIMB_MASK;
        carry >>= LIMB_BITS;
    }
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        uint64_t above = i + 1 < LIMBS ? x[i + 1] : carry;
        x[i] = x[i] >> 1 | (above & 1ul) << (LIMB_BITS - 1);
    }
}

// Coordinate 0 (X), 1 (Y), 2 (ZZ / 2^d) or 3 (ZZZ / 2^d) of a point in memory.
#define LIMBS_IN(at, name)                                                                    \
    layout(set = 0, binding = at, std430) readonly buffer name##_Points { uint name[]; };     \
    void load_##name(uint index, uint coordinate, out NUMBER z) {                             \
        uint limbs[STORED_LIMBS];                                                             \
        [[unroll]] for (uint i = 0; i < STORED_LIMBS; ++i) {                                  \
            limbs[i] = name[(index * STORED_LIMBS + i) * 4 + coordinate];                     \
        }                                                                                     \
        from_stored_limbs(limbs, z);                                                          \
        if (coordinate > 1 && FACTOR_SHIFT != 0) n_halve(z);                                  \
    }
