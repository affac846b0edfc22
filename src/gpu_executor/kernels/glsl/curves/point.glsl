// Mixed additions by single invocations, for GPUs: every product is inlined, and all numbers are in
// registers. Equal points are rare; they are doubled by the table of point_group.glsl.
//
// The bounds of numbers are those of point_group.glsl. Fields of degree 1 only.

#define PRIVATE_REGISTERS
#include "point_group.glsl"

// A local variable of each invocation, which drivers keep in registers. A form of this kernel with
// global variables added 0.05 G points/s on an NVIDIA H200, an earlier form with local ones 1.6.
struct Sum {
    uint x[LIMBS], y[LIMBS], zz[LIMBS], zzz[LIMBS];
    bool infinity;
};

// z = k p, for a constant k.
void multiple_of_modulus(uint k, out NUMBER z) {
    uint64_t t = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += uint64_t(modulus[i]) * k;
        z[i] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// z = x - y + k p, for a y of at most k p.
void n_sub(NUMBER x, NUMBER y, uint k, out NUMBER z) {
    NUMBER kp;
    multiple_of_modulus(k, kp);
    int carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int limb = int(x[i] + kp[i]) - int(y[i]) + carry;
        z[i] = uint(limb) & LIMB_MASK;
        carry = limb >> LIMB_BITS;
    }
}

// z = k p - x, for an x of at most k p.
void n_negate_multiple(NUMBER x, uint k, out NUMBER z) {
    NUMBER zero;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) zero[i] = 0;
    n_sub(zero, x, k, z);
}

// z = x - y - 2 w + k p, for a y + 2 w of at most k p.
void n_sub_sum(NUMBER x, NUMBER y, NUMBER w, uint k, out NUMBER z) {
    NUMBER kp;
    multiple_of_modulus(k, kp);
    int carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        int limb = int(x[i] + kp[i]) - int(y[i]) + carry;
        int low = (limb & int(LIMB_MASK)) - int(2 * w[i]);
        z[i] = uint(low) & LIMB_MASK;
        carry = (limb >> LIMB_BITS) + (low >> LIMB_BITS);
    }
}

void n_copy(NUMBER x, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = x[i];
}

void double_sum(inout Sum sum) {
    set_number(PX, 0, sum.x);
    set_number(PY, 0, sum.y);
    set_number(PZZ, 0, sum.zz);
    set_number(PZZZ, 0, sum.zzz);
    add_points(true, true, sum.infinity, true);
    get_number(PX, 0, sum.x);
    get_number(PY, 0, sum.y);
    get_number(PZZ, 0, sum.zz);
    get_number(PZZZ, 0, sum.zzz);
}

// Adds (x, y), which is not the point at infinity: 8M + 2S, and the last two products of Y share one
// reduction.
void add_affine(inout Sum sum, NUMBER x, NUMBER y) {
    if (sum.infinity) {
        n_copy(x, sum.x);
        n_copy(y, sum.y);
        load_constant(ONE, sum.zz);
        load_constant(ONE, sum.zzz);
        sum.infinity = false;
        return;
    }
    NUMBER r, s, t, u, v, w;
    mul_limbs(x, sum.zz, u);
    n_sub(u, sum.x, 8, u);              // 10p
    square_limbs(u, v);                 // 100; v = 0 if and only if the two x are equal
    mul_limbs(y, sum.zzz, t);
    n_sub(t, sum.y, 4, r);              // 6p
    square_limbs(r, t);                 // 36; t = 0 if and only if the two y are equal
    if (n_is_zero(v)) {
        if (n_is_zero(t)) double_sum(sum);
        else sum.infinity = true;
        return;
    }
    mul_limbs(u, v, w);
    mul_limbs(sum.x, v, s);
    n_sub_sum(t, w, s, 6, sum.x);       // 8p
    n_sub(s, sum.x, 8, t);              // 10p
    n_negate_multiple(sum.y, 4, u);     // 4p
    mul_add_limbs(r, t, u, w, sum.y);   // 60 + 8
    mul_limbs(sum.zz, v, sum.zz);
    mul_limbs(sum.zzz, w, sum.zzz);
}

#undef AFFINE_IN
#define AFFINE_IN(at, name) ELEMENTS_IN(at, name##_number)                                    \
    bool load_##name(uint index, bool negative, out NUMBER limbs_x, out NUMBER limbs_y) {     \
        uint x[WORDS], y[WORDS], any = 0;                                                     \
        load_##name##_number(2 * index, x);                                                   \
        load_##name##_number(2 * index + 1, y);                                               \
        [[unroll]] for (uint i = 0; i < WORDS; ++i) any |= x[i] | y[i];                           \
        words_to_limbs(x, 0, limbs_x);                                                        \
        words_to_limbs(y, 0, limbs_y);                                                        \
        if (negative) n_negate(limbs_y, limbs_y);                                             \
        return any != 0;                                                                      \
    }
#undef LIMBS_OUT
#define LIMBS_OUT(at, name)                                                                   \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { uvec4 name[]; };   \
    void store_##name(uint index, Sum sum) {                                                  \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                         \
            uvec4 v = uvec4(sum.x[i], sum.y[i], sum.zz[i], sum.zzz[i]);                       \
            name[index * LIMBS + i] = sum.infinity ? uvec4(0) : v;                            \
        }                                                                                     \
    }
