// Numbers of transforms for primes of 250 to 255 bits: 9 signed limbs of 29 bits, multiplied by known
// factors with Shoup's method.
//
// A factor w is stored with w' = floor(w 2^261 / p). The quotient of x w by p is about the upper half
// of x w'. So x w mod p takes the upper half of one product and the lower halves of two: 117 wide
// products of limbs and 18 narrow ones, where a Montgomery product takes 153 wide ones.
//
// Numbers are signed and not reduced: between -190p and 190p. Their limbs are between -2 and 2^29 + 2
// after `carry_up`. Sums of up to three such limbs may be multiplied. The columns of x w' below the
// upper half are not computed, so the quotient is too small by 8 for each of the three, or too large
// if limbs are negative. Products are between -30p and 30p, which is below 2^260: the limbs have room.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "spec_ids.glsl"

#define NUMBER int[9]
#define EACH_LIMB(i) [[unroll]] for (int i = 0; i < 9; ++i)
const int NUMBER_MASK = (1 << 29) - 1;

#define MODULUS_LIMB(n) layout(constant_id = ID_MODULUS + n) const int MODULUS_##n = 1;
MODULUS_LIMB(0) MODULUS_LIMB(1) MODULUS_LIMB(2) MODULUS_LIMB(3) MODULUS_LIMB(4)
MODULUS_LIMB(5) MODULUS_LIMB(6) MODULUS_LIMB(7) MODULUS_LIMB(8)
#define LOAD_MINUS_P                                                                          \
    const int minus_p[9] = int[9](                                                            \
        -MODULUS_0, -MODULUS_1, -MODULUS_2, -MODULUS_3, -MODULUS_4,                           \
        -MODULUS_5, -MODULUS_6, -MODULUS_7, -MODULUS_8                                        \
    );
// 2^(BITS + 29) / p, where p has BITS bits.
layout(constant_id = ID_RECIPROCAL) const int RECIPROCAL = 1;
layout(constant_id = ID_RECIPROCAL_SHIFT) const uint RECIPROCAL_SHIFT = 52; // BITS - 203

int64_t mul_signed(int x, int y) {
    return int64_t(x) * int64_t(y);
}

// Every carry goes one limb up.
void carry_up(inout NUMBER x) {
    int carry = 0;
    EACH_LIMB(i) {
        int limb = x[i];
        x[i] = (i < 8 ? limb & NUMBER_MASK : limb) + carry;
        carry = limb >> 29;
    }
}

// x mod p, from 0 to p + p / 2^12.
void reduce_weakly(inout NUMBER x) {
    LOAD_MINUS_P
    int64_t estimate = mul_signed(x[8], RECIPROCAL) - (int64_t(1) << (RECIPROCAL_SHIFT - 13));
    int quotient = int(estimate >> RECIPROCAL_SHIFT);
    int64_t t = 0;
    [[unroll]] for (int i = 0; i < 8; ++i) {
        t += int64_t(x[i]);
        t += mul_signed(quotient, minus_p[i]);
        x[i] = int(t) & NUMBER_MASK;
        t >>= 29;
    }
    x[8] += int(t) + quotient * minus_p[8];
}

// 9 limbs of w, 9 limbs of w'.
#define FACTOR int[18]

// x *= w
void mul_factor(FACTOR factor, inout NUMBER x) {
    LOAD_MINUS_P
    int q[9], z[9];
    int64_t t = 0;
    [[unroll]] for (int k = 8; k < 17; ++k) {
        EACH_LIMB(i) {
            if (k - i >= 0 && k - i < 9) t += mul_signed(x[i], factor[9 + k - i]);
        }
        if (k > 8) q[k - 9] = int(t) & NUMBER_MASK;
        t >>= 29;
    }
    q[8] = int(t);
    t = 0;
    [[unroll]] for (int k = 0; k < 8; ++k) {
        int64_t column = 0; // a sum of its own does not wait for the quotient
        [[unroll]] for (int i = 0; i < 8; ++i) {
            if (i <= k) column += mul_signed(x[i], factor[k - i]);
        }
        [[unroll]] for (int i = 0; i < 8; ++i) {
            if (i <= k) t += mul_signed(q[i], minus_p[k - i]);
        }
        t += column;
        z[k] = int(t) & NUMBER_MASK;
        t >>= 29;
    }
    // The topmost limb is computed modulo 2^32, and 29 bits of it are left.
    int top = int(t);
    EACH_LIMB(i) top += x[i] * factor[8 - i];
    EACH_LIMB(i) top += q[i] * minus_p[8 - i];
    z[8] = (top << 3) >> 3;
    EACH_LIMB(i) x[i] = z[i];
}

// u, v = u + v, u - v, without carries.
void add_sub(inout NUMBER u, inout NUMBER v) {
    EACH_LIMB(i) {
        int sum = u[i] + v[i];
        v[i] = u[i] - v[i];
        u[i] = sum;
    }
}

// --- elements of 8 words ---

void unpack_words(uvec4 low, uvec4 high, out NUMBER x) {
    uint words[8] = uint[8](low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w);
    EACH_LIMB(i) {
        int word = 29 * i >> 5, offset = 29 * i & 31;
        uint limb = words[word] >> offset;
        if (offset > 3 && word < 7) limb |= words[word + 1] << (32 - offset);
        x[i] = i < 8 ? int(limb) & NUMBER_MASK : int(limb);
    }
}

// x mod p; at most p + p / 2^12 unless `fully`.
void pack_words(NUMBER x, bool fully, out uvec4 low, out uvec4 high) {
    reduce_weakly(x);
    if (fully) {
        LOAD_MINUS_P
        int less[9], borrow = 0;
        EACH_LIMB(i) {
            int limb = x[i] + minus_p[i] + borrow;
            less[i] = i < 8 ? limb & NUMBER_MASK : limb;
            borrow = limb >> 29;
        }
        EACH_LIMB(i) x[i] = less[8] < 0 ? x[i] : less[i];
    }
    uint words[8];
    [[unroll]] for (int i = 0; i < 8; ++i) {
        int limb = 32 * i / 29, offset = 32 * i % 29;
        words[i] = uint(x[limb]) >> offset | uint(x[limb + 1]) << (29 - offset);
    }
    low = uvec4(words[0], words[1], words[2], words[3]);
    high = uvec4(words[4], words[5], words[6], words[7]);
}
