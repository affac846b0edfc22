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

// The number of the lane whose index differs in the bits of `mask`: 1 and 2 times DEGREE exchange the
// slots 0 with 1 and 2 with 3, or 0 with 2 and 1 with 3.
void exchange(uint mask, NUMBER x, out NUMBER z) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = subgroupShuffleXor(x[i], mask);
}

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

int64_t scale(uint limb, int factor) { return int64_t(int(limb)) * int64_t(factor); }

// z = m x + n y + l w + k p, which is between 0 and M.
void n_combine(int m, NUMBER x, int n, NUMBER y, int l, NUMBER w, int k, out NUMBER z) {
    int64_t t = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += scale(x[i], m) + scale(y[i], n) + scale(w[i], l) + scale(modulus[i], k);
        z[i] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// z = m x + n y + k p, which is between 0 and M.
void n_combine(int m, NUMBER x, int n, NUMBER y, int k, out NUMBER z) {
    int64_t t = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += scale(x[i], m) + scale(y[i], n) + scale(modulus[i], k);
        z[i] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// z = x y, for numbers below 10p.
void c_mul(NUMBER x, NUMBER y, out NUMBER z) {
#if DEGREE == 1
    MUL(x, y, z);
#else
    // (x0 + x1 u) (y0 + y1 u) = x0 y0 + NONRESIDUE x1 y1 + (x0 y1 + x1 y0) u
    NUMBER other_x, other_y, scaled, a, c;
    exchange(1, x, other_x);
    exchange(1, y, other_y);
    n_combine(NONRESIDUE, other_x, 0, other_x, NONRESIDUE < 0 ? -10 * NONRESIDUE : 0, scaled);
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
