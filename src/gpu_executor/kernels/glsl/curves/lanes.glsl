// Coordinates in the registers of lanes: a coefficient of a coordinate is a number in one of DEGREE
// neighbouring lanes, and LANES neighbouring lanes of a subgroup compute together.
//
// Lanes read from each other: all lanes of a group call together.
//
// Include coordinate.glsl first, and define LANES. With BY_ROWS, products are those for kernels that
// wait for each product.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
const uint GROUPS = gl_WorkGroupSize.x / LANES;

uint lane() { return gl_LocalInvocationID.x % LANES; }
uint part() { return lane() % DEGREE; } // the coefficient

#ifdef BY_ROWS
#define MUL mul_limbs_by_rows
#define MUL_ADD mul_add_limbs_by_rows
#else
#define MUL mul_limbs
#define MUL_ADD mul_add_limbs
#endif

#ifndef F64_LIMBS
// The number of the lane whose index differs in the bits of `mask`. At degree 2, a mask of 1 exchanges
// the coefficients of a coordinate. In point_lanes.glsl, DEGREE exchanges slot 0 with 1 and 2 with 3;
// 2 * DEGREE exchanges 0 with 2 and 1 with 3.
void exchange(uint mask, NUMBER x, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = subgroupShuffleXor(x[i], mask);
}
#endif

void n_clear(out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = 0;
}

void n_copy(NUMBER x, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = x[i];
}

// z = x, or 0 unless the condition holds.
void n_mask(bool condition, NUMBER x, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = condition ? x[i] : 0;
}

void n_select(bool condition, NUMBER x, NUMBER y, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = condition ? x[i] : y[i];
}

// z = k p, for a constant k.
void multiple_of_modulus(uint k, out NUMBER z) {
    uint64_t t = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += uint64_t(MODULUS_LIMB(i)) * k;
        z[i] = LIMB(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// z = x - y + k p, for a y of at most k p.
void n_sub(NUMBER x, NUMBER y, uint k, out NUMBER z) {
    NUMBER kp;
    multiple_of_modulus(k, kp);
    SIGNED_LIMB carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        SIGNED_LIMB limb = SIGNED_LIMB(x[i] + kp[i]) - SIGNED_LIMB(y[i]) + carry;
        z[i] = LIMB(limb) & LIMB_MASK;
        carry = limb >> LIMB_BITS;
    }
}

// z = x - y - 2 w + k p, for a y + 2 w of at most k p.
void n_sub_sum(NUMBER x, NUMBER y, NUMBER w, uint k, out NUMBER z) {
    NUMBER kp;
    multiple_of_modulus(k, kp);
    SIGNED_LIMB carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        SIGNED_LIMB limb = SIGNED_LIMB(x[i] + kp[i]) - SIGNED_LIMB(y[i]) + carry;
        SIGNED_LIMB low = (limb & SIGNED_LIMB(LIMB_MASK)) - SIGNED_LIMB(2 * w[i]);
        z[i] = LIMB(low) & LIMB_MASK;
        carry = (limb >> LIMB_BITS) + (low >> LIMB_BITS);
    }
}

// z = k x + y, for a k of at most 3: no sum of limbs has more bits than a LIMB.
void n_mul_add(uint k, NUMBER x, NUMBER y, out NUMBER z) {
    LIMB carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        LIMB limb = k * x[i] + y[i] + carry;
        z[i] = limb & LIMB_MASK;
        carry = limb >> LIMB_BITS;
    }
}

#if DEGREE == 2
// z = NONRESIDUE x, for an x below 10p; not negative.
void n_mul_nonresidue(NUMBER x, out NUMBER z) {
    int64_t t = 0;
    int k = NONRESIDUE < 0 ? -10 * NONRESIDUE : 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += int64_t(int(x[i])) * NONRESIDUE + int64_t(int(modulus[i])) * k;
        z[i] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}
#endif

// z = x y, for numbers below 10p.
void c_mul(NUMBER x, NUMBER y, out NUMBER z) {
#if DEGREE == 1
    MUL(x, y, z);
#else
    // (x0 + x1 u) (y0 + y1 u) = x0 y0 + NONRESIDUE x1 y1 + (x0 y1 + x1 y0) u
    NUMBER other_x, other_y, scaled, a, c;
    exchange(1, x, other_x);
    exchange(1, y, other_y);
    n_mul_nonresidue(other_x, scaled);
    n_select(part() == 0, x, other_x, a);
    n_select(part() == 0, scaled, x, c);
    MUL_ADD(a, y, c, other_y, z);
#endif
}

// Whether a coordinate is 0, for a product.
bool c_is_zero(NUMBER x) {
    bool zero = n_is_zero(x);
#if DEGREE == 2
    zero = subgroupShuffleXor(uint(zero), 1) != 0 && zero;
#endif
    return zero;
}
