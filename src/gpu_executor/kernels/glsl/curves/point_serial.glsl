// Operations on XYZZ points by single invocations, in a form that lavapipe compiles fast: combine.comp
// at 381 bits in 0.7 s, instead of 13 s with the products inlined. The other forms of the group law:
// point_group.glsl.
//
// A table lists the steps of each operation, and a loop with one product in its body runs them, on
// registers in shared memory. lavapipe makes of each access to memory a loop over the invocations of a
// vector, so a register is vectors of four limbs, and loops copy single limbs. It fills a constant array
// that has a variable index element by element and invocation by invocation, so a chain of selections
// finds a step in the table.
//
// lavapipe leaves every loop, and results are wrong, after 65,535 iterations of all loops of an
// invocation together. At degree d, an addition takes about 17 d iterations, a doubling 14 d (an
// addition beside doublings in the same vector 31 d), a load or store of limbs LIMBS * d, and a copy
// of a point 5 LIMBS * d.
//
// Every number is lazily reduced (coordinate.glsl): X is below 8p, Y below 4p, ZZ and ZZZ below 2p.
// Additions are complete: they treat equal points, opposite points and the point at infinity.
//
// Include coordinate.glsl and declare CONSTANTS first.

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(constant_id = ID_A_IS_ZERO) const bool A_IS_ZERO = true;
const uint LANES = 1, GROUPS = gl_WorkGroupSize.x;
uint lane() { return 0; }
bool is_any(bool condition) { return condition; }

// --- the table of steps ---

// The registers of a group: the point P that an operation changes, the other operand Q, temporary
// numbers, and the coefficient a.
const uint PX = 0, PY = 1, PZZ = 2, PZZZ = 3, QX = 4, QY = 5, QZZ = 6, QZZZ = 7;
const uint R = 8, S = 9, T = 10, U = 11, V = 12, W = 13, A = 14, B = 15, REGISTERS = 16;

// A step computes z = x y, the square z = x^2, or z = x. Here x is a linear combination
// m r + n s + l t + k p of registers with small integers, and y is a register.
//
// In a comment, "8p" bounds the number x where it is not a register, or the result where it is not
// below 2p; "64" bounds the product of two numbers, in units of p^2. `kernels/curves.py` chooses
// limbs with enough slack M / p for the largest.
#define X3(m, r, n, s, l, t, k)                                                               \
    ((r) | (s) << 5 | (t) << 10 | (m) << 15 | (n + 8) << 19 | (l + 8) << 23 | (k) << 27)
#define X2(m, r, n, s, k) X3(m, r, n, s, 0, r, k)
#define X1(m, r) X3(m, r, 0, r, 0, r, 0)
const uint PRODUCT = 0, SQUARE = 1, LINEAR = 2;
#define STEP(z, x, y, kind) uvec2(x, (z) | (y) << 8 | (kind) << 16)
#define MUL(z, x, y) STEP(z, X1(1, x), y, PRODUCT)
#define MULX(z, x, y) STEP(z, x, y, PRODUCT)
#define SQR(z, x) STEP(z, x, 0, SQUARE)
#define LIN(z, x) STEP(z, x, 0, LINEAR)
#define COPY(z, x) LIN(z, X1(1, x))

// Explicit-Formulas Database, "xyzz": addition 12M + 2S, doubling 6M + 3S.
const uvec2 PROGRAM[] = uvec2[](
    // the beginning of an addition
    MUL(U, PX, QZZ), MUL(V, QX, PZZ), MUL(S, PY, QZZZ), MUL(T, QY, PZZZ),             // 16, 8
    // W is 0 if and only if the two x are equal, B if the two y are equal.
    SQR(W, X2(1, V, -1, U, 2)), SQR(B, X2(1, T, -1, S, 2)),                           // 4p; 16
    MUL(QX, PZZ, QZZ), MUL(QY, PZZZ, QZZZ),
    // its end
    MULX(QZZ, X2(1, V, -1, U, 2), W), MUL(QZZZ, U, W), MUL(PZZ, QX, W),               // 4p
    LIN(R, X2(1, T, -1, S, 2)),                                                       // 4p
    MULX(V, X3(3, QZZZ, 1, QZZ, -1, B, 2), R), MUL(T, S, QZZ), MUL(PZZZ, QY, QZZ),    // 10p; 40
    LIN(PX, X3(1, B, -1, QZZ, -2, QZZZ, 6)),                                          // 8p
    LIN(PY, X2(1, V, -1, T, 2)),                                                      // 4p
    // the beginning of a doubling; W is 0 if and only if y is 0
    SQR(W, X1(2, PY)), MUL(T, PX, PX), MUL(R, PZZ, PZZ),                              // 8p; 64
    // its end, if the coefficient a is 0
    MULX(V, X1(2, PY), W), MUL(S, PX, W), SQR(B, X1(3, T)), MUL(QZZ, PZZ, W),         // 6p; 36
    MULX(U, X2(9, S, -3, B, 6), T), MUL(QY, V, PY), MUL(QZZZ, V, PZZZ),               // 24p; 48
    LIN(PX, X2(1, B, -2, S, 4)),                                                      // 6p
    LIN(PY, X2(1, U, -1, QY, 2)), COPY(PZZ, QZZ), COPY(PZZZ, QZZZ),                   // 4p
    // its end for any a
    MULX(V, X1(2, PY), W), MUL(S, PX, W), MUL(U, A, R), MUL(QZZ, PZZ, W),             // 16
    SQR(B, X2(3, T, 1, U, 0)), MUL(QY, V, PY), MUL(QZZZ, V, PZZZ),                    // 8p; 64
    LIN(R, X2(3, T, 1, U, 0)),                                                        // 8p
    MULX(U, X2(3, S, -1, B, 2), R), LIN(PX, X2(1, B, -2, S, 4)),                      // 8p; 64
    LIN(PY, X2(1, U, -1, QY, 2)), COPY(PZZ, QZZ), COPY(PZZZ, QZZZ)                    // 4p
);

// The steps at which the parts begin: two of an addition, two of a doubling, and the second one of a
// doubling for any a; behind them the number of steps.
#define BOUNDARIES uint[](0, 8, 17, 20, 31, 44)
uint part_begin(uint part) { return BOUNDARIES[part == 3 && !A_IS_ZERO ? 4 : part]; }
uint part_end(uint part) { return BOUNDARIES[part == 3 && !A_IS_ZERO ? 5 : part + 1]; }

uvec2 get_step(uint index) {
    uvec2 step = uvec2(0);
    // Two loops, which lavapipe unrolls; it unrolls no loop of 44 iterations.
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        [[unroll]] for (uint k = 0; k < 11; ++k) {
            if (index == 11 * i + k) step = PROGRAM[11 * i + k];
        }
    }
    return step;
}

// --- registers ---

const uint VECTORS = (LIMBS + 3) / 4;
shared uvec4 registers[REGISTERS * DEGREE * VECTORS * GROUPS];

#define COPY_LOOP [[dont_unroll]] for
#define EACH_LIMB(i) COPY_LOOP (uint i = 0; i < COORDINATE_LIMBS; ++i)
#define EACH_COORDINATE(k) COPY_LOOP (uint k = 0; k < 4; ++k)

uint vector_at(uint index, uint part, uint vector) {
    return ((index * DEGREE + part) * VECTORS + vector) * GROUPS + gl_LocalInvocationID.x;
}

uint get_limb(uint index, uint limb) {
    return registers[vector_at(index, limb / LIMBS, limb % LIMBS / 4)][limb % LIMBS % 4];
}

void set_limb(uint index, uint limb, uint value) {
    registers[vector_at(index, limb / LIMBS, limb % LIMBS / 4)][limb % LIMBS % 4] = value;
}

void get_number(uint index, uint part, out NUMBER x) {
    [[unroll]] for (uint i = 0; i < VECTORS; ++i) {
        uvec4 v = registers[vector_at(index, part, i)];
        [[unroll]] for (uint k = 0; k < 4; ++k) if (4 * i + k < LIMBS) x[4 * i + k] = v[k];
    }
}

void set_number(uint index, uint part, NUMBER x) {
    [[unroll]] for (uint i = 0; i < VECTORS; ++i) {
        uvec4 v = uvec4(0);
        [[unroll]] for (uint k = 0; k < 4; ++k) if (4 * i + k < LIMBS) v[k] = x[4 * i + k];
        registers[vector_at(index, part, i)] = v;
    }
}

bool register_is_zero(uint index) {
    bool zero = true;
    [[dont_unroll]] for (uint part = 0; part < DEGREE; ++part) {
        NUMBER x;
        get_number(index, part, x);
        zero = zero && n_is_zero(x);
    }
    return zero;
}

// --- steps ---

int64_t scale(uint limb, int factor) { return int64_t(int(limb)) * int64_t(factor); }

// z = m x + k p, which is between 0 and M.
void n_scale(int m, NUMBER x, int k, out NUMBER z) {
    int64_t t = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += scale(x[i], m) + scale(modulus[i], k);
        z[i] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// Coefficient `part` of the linear combination x of a step.
void get_combination(uint x, uint part, out NUMBER z) {
    get_number(x & 0x1F, part, z);
    int m = int(x >> 15 & 0xF), n = int(x >> 19 & 0xF) - 8, l = int(x >> 23 & 0xF) - 8;
    if (m != 1 || n != 0) {
        NUMBER s, t;
        get_number(x >> 5 & 0x1F, part, s);
        get_number(x >> 10 & 0x1F, part, t);
        int64_t sum = 0;
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
            sum += scale(z[i], m) + scale(s[i], n) + scale(t[i], l) + scale(modulus[i], int(x >> 27));
            z[i] = uint(sum) & LIMB_MASK;
            sum >>= LIMB_BITS;
        }
    }
}

// Coefficient `part` of a step.
void run_step(uvec2 step, uint part) {
    uint kind = step.y >> 16, iy = step.y >> 8 & 0xFF;
    NUMBER x, y, z;
#if DEGREE == 1
    get_combination(step.x, 0, x);
    if (kind == LINEAR) {
        set_number(step.y & 0xFF, 0, x);
    } else {
        get_number(iy, 0, y);
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) y[i] = kind == SQUARE ? x[i] : y[i];
        mul_limbs(x, y, z);
        set_number(step.y & 0xFF, 0, z);
    }
#else
    NUMBER v, w;
    if (kind == LINEAR) {
        get_combination(step.x, part, x);
        set_number(step.y & 0xFF, part, x);
    } else {
        // (x0 + x1 u) (y0 + y1 u) = x0 y0 + NONRESIDUE x1 y1 + (x0 y1 + x1 y0) u
        get_combination(step.x, 0, x);
        get_combination(step.x, 1, w);
        get_number(iy, part, y);
        get_number(iy, 1 - part, v);
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
            bool square = kind == SQUARE;
            y[i] = square ? (part == 0 ? x[i] : w[i]) : y[i];
            v[i] = square ? (part == 0 ? w[i] : x[i]) : v[i];
        }
        if (part == 0) {
            // x1 is below 24p.
            n_scale(NONRESIDUE, w, NONRESIDUE < 0 ? -24 * NONRESIDUE : 0, w);
        }
        mul_add_limbs(x, y, w, v, z);
        set_number(step.y & 0xFF, part, z);
    }
#endif
}

void run_part(uint part) {
    uint end = part_end(part) * DEGREE;
    [[dont_unroll]] for (uint i = part_begin(part) * DEGREE; i < end; ++i) {
        run_step(get_step(i / DEGREE), i % DEGREE);
    }
}

// P = P + Q, or with `doubles` P = 2 P. Q is lost. `infinity` and `other_infinity` say whether P and
// Q are the point at infinity.
void add_points(bool enabled, bool doubles, inout bool infinity, bool other_infinity) {
    if (enabled && !doubles && infinity && !other_infinity) {
        EACH_LIMB(i) {
            EACH_COORDINATE(k) set_limb(PX + k, i, get_limb(QX + k, i));
        }
        infinity = false;
        enabled = false;
    }
    bool now = enabled && !doubles && !infinity && !other_infinity; // takes part in this part
    bool doubling = enabled && doubles && !infinity;
    [[dont_unroll]] for (uint part = 0; part < 4; ++part) {
        if (part == 2) now = doubling;
        if (now) {
            run_part(part);
            if (part % 2 == 0 && register_is_zero(W)) {
                if (part == 0 && register_is_zero(B)) doubling = true;
                else infinity = true;
                now = false;
            }
        }
    }
}

// The operands are in shared memory; in point_lanes.glsl they are arguments of functions.
#define OPERANDS
#define OPERAND_PARAMETERS
#define PQ
const uint TO_P = PX, TO_Q = QX;

// --- points in memory ---

// Loads Q from words of limb form, below p. Affine points have no denominators, and (0, 0) is the
// point at infinity; returns whether it is.
#define LOAD_WORDS(name)                                                                      \
    bool load_##name(bool enabled, uint coordinates, uint index, bool negative) {             \
        if (!enabled) return true;                                                            \
        [[dont_unroll]] for (uint k = 0; k < 4 * DEGREE; ++k) {                               \
            NUMBER number;                                                                    \
            if (k < coordinates * DEGREE) {                                                   \
                uint words[WORDS];                                                            \
                load_##name##_number(index * coordinates * DEGREE + k, words);                \
                words_to_limbs(words, 0, number);                                             \
                if (negative && k / DEGREE == 1) n_negate(number, number);                    \
            } else {                                                                          \
                load_constant(ONE, number);                                                   \
                [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                 \
                    number[i] = k % DEGREE == 0 ? number[i] : 0;                              \
                }                                                                             \
            }                                                                                 \
            set_number(QX + k / DEGREE, k % DEGREE, number);                                  \
        }                                                                                     \
        uint first = coordinates == 2 ? QX : QZZZ;                                            \
        return register_is_zero(first) && register_is_zero(first == QX ? QY : first);         \
    }
#define AFFINE_IN(at, name) ELEMENTS_IN(at, name##_number)                                    \
    LOAD_WORDS(name)

// XYZZ points as lazily reduced limbs: limb i of X, Y, ZZ and ZZZ are one vector. load_name(i, first)
// loads a point to four registers and returns whether it is the point at infinity.
#define LIMBS_IN(at, name)                                                                    \
    layout(set = 0, binding = at, std430) readonly buffer name##_Points { uvec4 name[]; };    \
    bool load_##name(bool enabled, uint index, uint first) {                                   \
        EACH_LIMB(i) {                                                                        \
            uvec4 v = enabled ? name[index * COORDINATE_LIMBS + i] : uvec4(0);                 \
            set_limb(first, i, v.x);                                                          \
            set_limb(first + 1, i, v.y);                                                      \
            set_limb(first + 2, i, v.z);                                                      \
            set_limb(first + 3, i, v.w);                                                      \
        }                                                                                     \
        return register_is_zero(first + 2);                                                   \
    }
#define LIMBS_OUT(at, name)                                                                   \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { uvec4 name[]; };   \
    void store_##name(uint index, bool infinity) {                                            \
        EACH_LIMB(i) {                                                                        \
            uvec4 v = uvec4(                                                                  \
                get_limb(PX, i), get_limb(PY, i), get_limb(PZZ, i), get_limb(PZZZ, i)         \
            );                                                                                \
            name[index * COORDINATE_LIMBS + i] = infinity ? uvec4(0) : v;                     \
        }                                                                                     \
    }

// XYZZ points as words, each number below p.
#define POINTS_OUT(at, name) ELEMENTS_OUT(at, name##_number)                                  \
    void store_##name(uint index, bool infinity) {                                            \
        [[dont_unroll]] for (uint k = 0; k < 4 * DEGREE; ++k) {                               \
            NUMBER number, factor;                                                            \
            uint words[WORDS];                                                                \
            load_constant(TO_WORD_FORM, factor);                                              \
            get_number(PX + k / DEGREE, k % DEGREE, number);                                  \
            mul_limbs(number, factor, number);                                                \
            n_to_words(number, words);                                                        \
            [[unroll]] for (uint i = 0; i < WORDS; ++i) words[i] = infinity ? 0 : words[i];       \
            store_##name##_number(4 * DEGREE * index + k, words);                             \
        }                                                                                     \
    }

// Writes the constants that the steps read; the beginning of every kernel.
void begin() {
    EACH_LIMB(i) set_limb(A, i, constants[COEFFICIENT_A * LIMBS + i]);
}
