// Mixed additions, of an affine point to an XYZZ point, by single invocations (DEGREE 2: by pairs of
// lanes), for GPUs: every product is inlined, and all numbers are in registers. Branches depend on the
// point alone, so both lanes of a pair are in the same branch. The other forms of the group law:
// point_group.glsl.
//
// Include coordinate.glsl and declare CONSTANTS first.

const uint LANES = DEGREE;
#if DEGREE == 2
// The driver of an NVIDIA H200 compiles products by rows in 7 s instead of 27 s, and adds 0.52 G points
// of BLS12-381 G2 a second instead of 0.49. At degree 1 products by columns are faster: 1.95 G points
// of G1 instead of 1.87.
#define BY_ROWS
#endif
#include "lanes.glsl"
#define OPERANDS
#define PQ
void begin() {}

// z = x^2, for an x of at most 10p. With u^2 = -1 it is (x0 + x1) (x0 - x1) + 2 x0 x1 u: one product a
// lane, of at most 400, instead of two.
void c_square(NUMBER x, out NUMBER z) {
#if DEGREE == 1
    square_limbs(x, z);
#else
    if (NONRESIDUE == -1) {
        NUMBER other, a, b;
        exchange(1, x, other);
        n_select(part() == 0, x, other, a);
        n_mul_add(1, a, other, a);      // x0 + x1, 2 x0; 20p
        n_mask(part() == 0, other, b);
        n_sub(x, b, 10, b);             // x0 - x1, x1; 20p
        MUL(a, b, z);
    } else {
        c_mul(x, x, z);
    }
#endif
}

// z = a b - c d, for a c of at most 4p; below 4p.
void c_mul_sub(NUMBER a, NUMBER b, NUMBER c, NUMBER d, out NUMBER z) {
    NUMBER zero, negative;
    n_clear(zero);
    n_sub(zero, c, 4, negative);
#if DEGREE == 1
    MUL_ADD(a, b, negative, d, z);      // two products share one reduction
#else
    NUMBER x, y;
    c_mul(a, b, x);
    c_mul(negative, d, y);
    n_mul_add(1, x, y, z);
#endif
}

void load_one(out NUMBER z) {
    load_constant(ONE, z);
    n_mask(part() == 0, z, z);
}

// Adds (x, y) to the XYZZ point (sx, sy, szz, szzz), whose X is below 8p, Y below 4p, ZZ and ZZZ below
// 2p: 8M + 2S. Explicit-Formulas Database, "xyzz", madd-2008-s, with the variables in brackets:
//
//     U2 = x ZZ     P = U2 - X  [u]    P^2 [v]    P^3 [w]          X' = R^2 - P^3 - 2 Q
//     S2 = y ZZZ    R = S2 - Y  [r]    R^2 [t]    Q = X P^2 [s]    Y' = R (Q - X') - Y P^3
//                                                                  ZZ' = ZZ P^2    ZZZ' = ZZZ P^3
//
// Returns true, and leaves the sum as it is, if both points are equal: the caller then calls it again
// with `doubles`. So equal points, which are rare, need no product of their own. With R = 3 x^2 + a and
// P = 2 y the products are those of 2 (x, y), because a doubling is an addition to (x, y, 1, 1) with
// another slope, and without P^3 in X.
bool add_affine(
    NUMBER x, NUMBER y, bool doubles,
    inout NUMBER sx, inout NUMBER sy, inout NUMBER szz, inout NUMBER szzz, inout bool infinity
) {
    if (infinity) {
        n_copy(x, sx);
        n_copy(y, sy);
        load_one(szz);
        load_one(szzz);
        infinity = false;
        return false;
    }
    NUMBER r, s, t, u, v, w;
    n_select(doubles, x, szz, w);
    c_mul(x, w, u);                     // 2
    c_mul(y, szzz, t);                  // 2
    n_sub(t, sy, 4, r);                 // 6p
    if (doubles) {
        load_constant(COEFFICIENT_A + part(), t);
        n_mul_add(3, u, t, r);          // 7p
        n_copy(x, sx);
        n_copy(y, sy);
        load_one(szz);
        load_one(szzz);
        n_mul_add(1, y, y, u);          // 2p
    } else {
        n_sub(u, sx, 8, u);             // 10p
    }
    c_square(u, v);                     // 100; v = 0 if and only if the two x are equal, or y is 0
    c_square(r, t);                     // 49; t = 0 if and only if the two y are equal
    if (c_is_zero(v)) {
        if (!doubles && c_is_zero(t)) return true;
        infinity = true;
        return false;
    }
    c_mul(u, v, w);
    c_mul(sx, v, s);
    n_mask(!doubles, w, u);
    n_sub_sum(t, u, s, 6, sx);          // 8p
    n_sub(s, sx, 8, t);                 // 10p
    c_mul_sub(r, t, sy, w, sy);         // 70 + 8; 4p
    c_mul(szz, v, szz);
    c_mul(szzz, w, szzz);
    return false;
}

#define AFFINE_IN(at, name) ELEMENTS_IN(at, name##_number)                                    \
    bool load_##name(uint index, bool negative, out NUMBER limbs_x, out NUMBER limbs_y) {     \
        uint x[WORDS], y[WORDS];                                                              \
        load_##name##_number(2 * DEGREE * index + part(), x);                                 \
        load_##name##_number(2 * DEGREE * index + DEGREE + part(), y);                        \
        words_to_limbs(x, 0, limbs_x);                                                        \
        words_to_limbs(y, 0, limbs_y);                                                        \
        bool zero = c_is_zero(limbs_x);                                                       \
        zero = c_is_zero(limbs_y) && zero;                                                    \
        if (negative) n_negate(limbs_y, limbs_y);                                             \
        return !zero;                                                                         \
    }
#define LIMBS_OUT(at, name)                                                                   \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { uvec4 name[]; };   \
    void store_##name(uint index, NUMBER x, NUMBER y, NUMBER zz, NUMBER zzz, bool infinity) { \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                         \
            uvec4 v = uvec4(x[i], y[i], zz[i], zzz[i]);                                       \
            name[(index * DEGREE + part()) * LIMBS + i] = infinity ? uvec4(0) : v;            \
        }                                                                                     \
    }
