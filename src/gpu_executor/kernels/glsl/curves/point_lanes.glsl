// Operations on XYZZ points by groups of 4 * DEGREE neighbouring lanes of a subgroup, for GPUs. Each
// coordinate of a point is in one lane (DEGREE 2: each coefficient of a coordinate), so that the
// four products of a step of an addition run at the same time, and lanes exchange numbers by
// shuffles. A slot is the lanes of one coordinate: in slots 0 to 3, the operand p has X, ZZ, Y, ZZZ, and
// the operand q has ZZ, X, ZZZ, Y, so that the factors of the first four products are side by side.
// point_group.glsl says when this form of the group law is used.
//
// Every number is lazily reduced (coordinate.glsl): X is below 8p, Y below 4p, ZZ and ZZZ below 2p. In
// a comment, "8p" bounds a number that is not below 2p, and "64" a product of two numbers, in units
// of p^2. Additions are complete: they treat equal points, opposite points and the point at infinity.
//
// Lanes read from each other, so all calls are in uniform control flow; a group that takes no part
// passes `enabled` = false.
//
// Include coordinate.glsl and declare CONSTANTS first.

layout(constant_id = ID_A_IS_ZERO) const bool A_IS_ZERO = true;
const uint LANES = 4 * DEGREE;
#define BY_ROWS
#include "lanes.glsl"

uint slot() { return lane() / DEGREE; }

// --- numbers of other lanes ---

// The number of the same part in another slot.
void from_slot(uint from, NUMBER x, out NUMBER z) {
    uint source = gl_SubgroupInvocationID - lane() + from * DEGREE + part();
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = subgroupShuffle(x[i], source);
}

// Whether all coefficients of a slot fulfil a condition.
bool slot_fulfils(uint from, bool condition) {
    uint first = gl_SubgroupInvocationID - lane() + from * DEGREE;
    bool all = subgroupShuffle(uint(condition), first) != 0;
#if DEGREE == 2
    all = subgroupShuffle(uint(condition), first + 1) != 0 && all;
#endif
    return all;
}

// --- the group law ---

// An addition is a loop over its steps, with one product in the body. With a product for each step,
// its code has 55 KB at 381 bits, and a kernel that adds once waits for the instruction cache longer
// than it computes. The number of the next step is opaque for the compiler, which otherwise makes a copy
// of the loop's body for each step.
uint follow(uint step) { return step * gl_NumWorkGroups.y; } // there is one work-group along y

// p = p + q, or with `doubles` p = 2 p. An addition is 12M + 2S in four steps: Explicit-Formulas
// Database, "xyzz", add-2008-s, where P and Q are numbers, not points:
//
//     U1 = X1 ZZ2     U2 = X2 ZZ1     P = U2 - U1     X = R^2 - P^3 - 2 Q       ZZ = ZZ1 ZZ2 P^2
//     S1 = Y1 ZZZ2    S2 = Y2 ZZZ1    R = S2 - S1     Y = R (Q - X) - S1 P^3    ZZZ = ZZZ1 ZZZ2 P^3
//                                     Q = U1 P^2
//
// Each step computes one product in each slot. The table has the variables that hold these products, and
// the numbers made of them, slot by slot; "-" is a number that nobody reads:
//
//     step      variable    slot 0         slot 1              slot 2          slot 3
//
//               p           X1             ZZ1                 Y1              ZZZ1
//               q           ZZ2            X2                  ZZZ2            Y2
//     FIRST     us          U1 = X1 ZZ2    U2 = ZZ1 X2         S1 = Y1 ZZZ2    S2 = ZZZ1 Y2
//               pr          P = U2 - U1    -                   R = S2 - S1     -
//     SECOND    second      P^2            ZZ1 ZZ2             R^2             ZZZ1 ZZZ2
//               us          S1             -                   U1              -
//     THIRD     third       P^3 = P P^2    ZZ = ZZ1 ZZ2 P^2    Q = U1 P^2      -
//     LAST      z           S1 P^3         -                   R (Q - X)       ZZZ = ZZZ1 ZZZ2 P^3
//               p           X              ZZ                  Y               ZZZ
//
// A doubling is the same steps with U1 = X1, S1 = Y1, P = 2 Y1, R = 3 X1^2 + a ZZ1^2, the denominators of
// p alone, and without P^3 in X. It is 6M + 3S for a = 0 (dbl-2008-s-1), else 7M + 4S with a fifth step:
//
//     FIRST     us          -              ZZ1^2               X1^2            -
//               pr          P = 2 Y1       -                   3 X1^2          -
//     COEFFI-   z           -              a ZZ1^2             -               -
//     CIENT     pr          P              -                   R               -
//     SECOND    second      P^2            ZZ1, no product     R^2             ZZZ1, no product
//               us          Y1             -                   X1              -
//     THIRD     third       P^3 = P P^2    ZZ = ZZ1 P^2        Q = X1 P^2      -
//     LAST      z           Y1 P^3         -                   R (Q - X)       ZZZ = ZZZ1 P^3
//               p           X              ZZ                  Y               ZZZ
//
// `infinity` and `other_infinity` say whether p and q are the point at infinity. P^2 is 0 if both x are
// equal, or if the Y1 of a doubling is 0; R^2 is 0 if both y are equal. Equal points are doubled in a
// second round of the loop.
void add_point(
    inout NUMBER p, NUMBER q, bool enabled, bool doubles, inout bool infinity, bool other_infinity
) {
    const uint FIRST = 0, COEFFICIENT = 1, SECOND = 2, THIRD = 3, LAST = 4;
    NUMBER us, pr, second, third, x, y, z; // the factors of a step are x and y
    bool copies = enabled && !doubles && infinity && !other_infinity;
    exchange(DEGREE, q, z);
    n_select(copies, z, p, p);
    bool now = enabled && !infinity && (doubles || !other_infinity), same_x = false, same_y = false;
    if (copies) infinity = false;
    bool has_p = slot() == 0, has_r = slot() == 2;
    n_clear(third);
    n_clear(pr);
    n_clear(second);
    n_clear(us);
    [[dont_unroll]] for (uint step = FIRST; subgroupAny(now);) {
        if (step == FIRST) {
            // U1, U2, S1, S2; or ZZ1^2 in slot 1 and X1^2 in slot 2
            exchange(2 * DEGREE, p, z);
            n_select(doubles && has_r, z, p, x);
            n_select(doubles, x, q, y);                           // 64
        } else if (step == COEFFICIENT) {
            load_constant(COEFFICIENT_A + part(), x);
            n_copy(us, y);
        } else if (step == SECOND) {
            // P^2, ZZ1 ZZ2, R^2, ZZZ1 ZZZ2
            exchange(DEGREE, q, z);
            n_select(has_p || has_r, pr, p, x);
            n_select(has_p || has_r, pr, z, y);                   // 64
        } else if (step == THIRD) {
            // P^3, ZZ, Q
            from_slot(0, second, y);
            n_select(has_r, us, second, x);
            n_select(has_p, pr, x, x);                            // 16
        } else {
            // S1 P^3, R (Q - X), ZZZ; Q - X = 3 Q + P^3 - R^2
            from_slot(0, third, y);
            n_mask(!doubles, y, z);
            n_sub(z, second, 2, z);                               // 4p
            n_mul_add(3, third, z, z);                            // 10p
            n_select(has_r, z, y, y);
            n_select(has_r, pr, second, x);
            n_select(has_p, us, x, x);                            // 80
        }
        c_mul(x, y, z);
        if (step == FIRST) {
            n_copy(z, us);
            // P = U2 - U1 and R = S2 - S1, or 2 Y1 and 3 X1^2
            exchange(DEGREE, z, x);
            n_sub(x, z, 2, pr);                                   // 4p
            exchange(2 * DEGREE, p, x);
            n_select(has_p, x, z, x);
            n_mul_add(has_p ? 1 : 2, x, x, x);                    // 8p
            n_select(doubles, x, pr, pr);
            step = follow(!A_IS_ZERO && subgroupAny(now && doubles) ? COEFFICIENT : SECOND);
        } else if (step == COEFFICIENT) {
            from_slot(1, z, x);
            n_mul_add(1, pr, x, x);                               // 8p
            n_select(doubles && has_r, x, pr, pr);
            step = follow(SECOND);
        } else if (step == SECOND) {
            n_select(doubles && !has_p && !has_r, p, z, second);
            bool zero = n_is_zero(second);
            same_x = slot_fulfils(0, zero);
            same_y = slot_fulfils(2, zero);
            n_select(doubles, p, us, x);
            exchange(2 * DEGREE, x, us);                          // S1 in slot 0, U1 in slot 2
            step = follow(THIRD);
        } else if (step == THIRD) {
            n_copy(z, third);
            step = follow(LAST);
        } else {
            // X = R^2 - P^3 - 2 Q, in slot 2
            from_slot(0, third, y);
            n_mask(!doubles, y, y);
            n_sub_sum(second, y, third, 6, x);                    // 8p
            n_select(has_p, z, x, x);
            exchange(2 * DEGREE, x, y);                           // X in slot 0, S1 P^3 in slot 2
            n_sub(z, y, 2, x);                                    // Y in slot 2; 4p
            n_select(has_p, y, z, z);
            n_select(has_r, x, z, z);
            n_select(slot() == 1, third, z, z);
            n_select(now && !same_x, z, p, p);
            bool equal = now && !doubles && same_x && same_y;
            if (now && same_x && !equal) infinity = true;
            now = doubles = equal;
            step = FIRST;
        }
    }
}

// p = 2^times p: 6M + 3S in three steps for each doubling (dbl-2008-s-1; 7M + 4S in four if a is not 0):
//
//     V = (2 Y)^2     W = 2 Y V     S = X V     R = 3 X^2 + a ZZ^2
//     X' = R^2 - 2 S    Y' = R (S - X') - Y W    ZZ' = ZZ V    ZZZ' = ZZZ W
//
//     step    variable    slot 0        slot 1     slot 2     slot 3
//             p           X             ZZ         Y          ZZZ
//     1       c           X^2           ZZ^2       V          -
//             r           R             R          R          R
//     2       c           S             ZZ'        W          R^2
//     3       z           R (S - X')    -          Y W        ZZZ'
//             p           X'            ZZ'        Y'         ZZZ'
//
// ZZ becomes 0, which stands for the point at infinity, if it was 0, and if Y is 0. Doublings follow each
// other, so the code of all steps stays in the instruction cache.
void double_point(inout NUMBER p, uint times) {
    bool is_x = slot() == 0, is_y = slot() == 2, is_zzz = slot() == 3;
    [[dont_unroll]] for (uint i = 0; i < times; ++i) {
        NUMBER c, r, v, w, x, y, z;
        // step 1: X^2, ZZ^2, V
        n_mul_add(1, p, p, y);
        n_select(is_y, y, p, y);                                  // 8p
        c_mul(y, y, c);                                           // 64
        from_slot(2, c, v);
        from_slot(0, c, x);
        n_mul_add(2, x, x, r);                                    // 6p
        if (!A_IS_ZERO) {
            load_constant(COEFFICIENT_A + part(), x);
            c_mul(x, c, z);
            from_slot(1, z, x);
            n_mul_add(1, r, x, r);                                // 8p
        }
        // step 2: S, ZZ', W, R^2
        n_select(is_zzz, r, y, x);
        n_select(is_zzz, r, v, y);
        c_mul(x, y, c);                                           // 64
        from_slot(2, c, w);
        from_slot(3, c, v);
        // step 3: R (S - X'), Y W, ZZZ'; S - X' = 3 S - R^2
        n_clear(x);
        n_sub(x, v, 2, y);                                        // 2p
        n_mul_add(3, c, y, y);                                    // 8p
        n_select(is_x, y, w, y);
        n_select(is_x, r, p, x);
        c_mul(x, y, z);                                           // 64
        n_clear(x);
        n_sub_sum(v, x, c, 4, x);                                 // 6p
        exchange(2 * DEGREE, z, y);
        n_sub(y, z, 2, y);                                        // 4p
        n_select(is_x, x, z, p);
        n_select(is_y, y, p, p);
        n_select(slot() == 1, c, p, p);
    }
}

// --- operands ---

// The operands of an addition: variables of a kernel, and arguments of functions.
#define OPERANDS NUMBER p, q; n_clear(p); n_clear(q);
#define OPERAND_PARAMETERS inout NUMBER p, inout NUMBER q,
#define PQ p, q,
const bool TO_P = false, TO_Q = true;

// The coordinate (0: X, 1: Y, 2: ZZ, 3: ZZZ) of P or Q in this slot.
uint coordinate(bool second) {
    uint of_p = slot() == 1 ? 2 : slot() == 2 ? 1 : slot();
    return second ? of_p ^ 2 : of_p;
}

// Whether the denominators of an operand are 0.
bool is_infinite(NUMBER x, bool second) {
    bool zero = n_is_zero(x);
    return slot_fulfils(second ? 0 : 1, zero);
}

void add_points(
    OPERAND_PARAMETERS bool enabled, bool doubles, inout bool infinity, bool other_infinity
) {
    add_point(p, q, enabled, doubles, infinity, other_infinity);
}

void double_points(OPERAND_PARAMETERS bool enabled, uint times, inout bool infinity) {
    double_point(p, times);
    infinity = infinity || is_infinite(p, TO_P);
}

// --- points in memory ---

// Loads a coordinate of Q from words of limb form, below p; `at` is the index of the coordinate
// 0 of the point. Affine points have no denominators, and (0, 0) is the point at infinity; returns
// whether it is.
#define LOAD_WORDS(name)                                                                      \
    bool load_##name(OPERAND_PARAMETERS bool enabled, uint coordinates, uint index, bool negative) { \
        uint own = coordinate(TO_Q);                                                          \
        n_clear(q);                                                                           \
        if (enabled && own < coordinates) {                                                   \
            uint words[WORDS];                                                                \
            load_##name##_number((index * coordinates + own) * DEGREE + part(), words);       \
            words_to_limbs(words, 0, q);                                                      \
            if (negative && own == 1) n_negate(q, q);                                         \
        }                                                                                     \
        bool zero = n_is_zero(q);                                                             \
        bool infinity = coordinates == 4 ? slot_fulfils(0, zero)                              \
                                         : slot_fulfils(1, zero) && slot_fulfils(3, zero);    \
        if (own >= coordinates && part() == 0) load_constant(ONE, q);                         \
        return !enabled || infinity;                                                          \
    }
#define AFFINE_IN(at, name) ELEMENTS_IN(at, name##_number)                                    \
    LOAD_WORDS(name)

// XYZZ points as lazily reduced limbs: limb i of X, Y, ZZ and ZZZ are neighbours. load_name returns
// whether a point is the point at infinity.
#define LIMBS_IN(at, name)                                                                    \
    layout(set = 0, binding = at, std430) readonly buffer name##_Points { uint name[]; };     \
    bool load_##name(OPERAND_PARAMETERS bool enabled, uint index, bool second) {              \
        NUMBER x;                                                                             \
        uint first = (index * DEGREE + part()) * LIMBS * 4 + coordinate(second);              \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                         \
            x[i] = enabled ? name[first + 4 * i] : 0;                                         \
        }                                                                                     \
        n_select(second, x, q, q);                                                            \
        n_select(second, p, x, p);                                                            \
        return is_infinite(x, second);                                                        \
    }
#define LIMBS_OUT(at, name)                                                                   \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { uint name[]; };    \
    void store_##name(OPERAND_PARAMETERS uint index, bool infinity) {                         \
        uint first = (index * DEGREE + part()) * LIMBS * 4 + coordinate(TO_P);                \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                         \
            name[first + 4 * i] = infinity ? 0 : p[i];                                        \
        }                                                                                     \
    }

// XYZZ points as words, each number below p.
#define POINTS_OUT(at, name) ELEMENTS_OUT(at, name##_number)                                  \
    void store_##name(OPERAND_PARAMETERS uint index, bool infinity) {                         \
        NUMBER factor, number;                                                                \
        uint words[WORDS];                                                                    \
        load_constant(TO_WORD_FORM, factor);                                                  \
        mul_limbs_by_rows(p, factor, number);                                                 \
        n_to_words(number, words);                                                            \
        [[unroll]] for (uint i = 0; i < WORDS; ++i) words[i] = infinity ? 0 : words[i];           \
        store_##name##_number((4 * index + coordinate(TO_P)) * DEGREE + part(), words);       \
    }

void begin() {}
bool is_any(bool condition) { return subgroupAny(condition); }
