// Operations on XYZZ points by groups of invocations: on a GPU the LANES invocations of a group
// compute the products of an addition that do not depend on each other at the same time; on a CPU a
// group is one invocation. A table lists the steps of each operation, and a loop with one product in
// its body runs them: a driver that inlines every product of an addition compiles it for minutes.
// With PRIVATE_REGISTERS, a group is one invocation with registers of its own.
//
// With SERIAL a group is one invocation too, in a form that lavapipe compiles fast: combine.comp at
// 381 bits in 0.7 s instead of 13 s. lavapipe makes of each access to memory a loop over the
// invocations of a vector, so a register is vectors of four limbs, and loops copy single limbs. It
// fills a constant array that has a variable index element by element and invocation by invocation,
// so a chain of selections finds a step in the table.
//
// lavapipe leaves every loop, and results are wrong, after 65,535 iterations of all loops of an
// invocation together. At degree d, an addition takes about 23 d iterations, a doubling 22 d (an
// addition beside doublings in the same vector 40 d), a load or store of limbs LIMBS * d, and a copy
// of a point 5 LIMBS * d.
//
// Every number is lazily reduced (coordinate.glsl): X is below 8p, Y below 4p, ZZ and ZZZ below 2p.
// Additions are complete: they treat equal points, opposite points and the point at infinity.
//
// A subgroup runs the same steps at the same time, because lanes wait for each other. So all calls
// are in uniform control flow; a group that takes no part passes `enabled` = false.
//
// Include coordinate.glsl and declare CONSTANTS first.

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_vote : require

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
#if defined(PRIVATE_REGISTERS) || defined(SERIAL)
const uint LANES = 1;
#else
layout(constant_id = ID_LANES) const uint LANES = 1; // a divisor of the subgroup's size
#endif
layout(constant_id = ID_A_IS_ZERO) const bool A_IS_ZERO = true;

// --- the table of steps ---

// The registers of a group: the point P that an operation changes, the other operand Q, temporary
// numbers, and the coefficient a.
const uint PX = 0, PY = 1, PZZ = 2, PZZZ = 3, QX = 4, QY = 5, QZZ = 6, QZZZ = 7;
const uint R = 8, S = 9, T = 10, U = 11, V = 12, W = 13, A = 14, B = 15, REGISTERS = 16;

// A step computes z = x y, or the linear combination z = m x + n y + l w + k p with small integers.
// NONE does nothing. In a comment, "8p" bounds the number that a step computes, where it is not
// below 2p, and "100" the product of two numbers, in units of p^2. The largest is 100: an X of 10p
// times another, so the slack M / p must be at least 100 (`kernels/curves.py`).
#define STEP(z, x, y, w, m, n, l, k)                                                          \
    uvec2((z) | (x) << 8 | (y) << 16 | (w) << 24, (m) | (n + 8) << 8 | (l + 8) << 16 | (k) << 24)
#define MUL(z, x, y) STEP(z, x, y, 0, 0, 0, 0, 0)
#define LINEAR(z, m, x, n, y, l, w, k) STEP(z, x, y, w, m, n, l, k)
#define COPY(z, x) LINEAR(z, 1, x, 0, x, 0, x, 0)
#define NONE uvec2(0xFFFFFFFF)

// The steps of a row run at the same time, on SLOTS lanes for each degree. SERIAL has rows of one
// step.
#ifdef SERIAL
const uint SLOTS = 1;
#define ROW1(a) a
#define ROW2(a, b) a, b
#define ROW3(a, b, c) a, b, c
#define ROW4(a, b, c, d) a, b, c, d
#else
const uint SLOTS = 4;
#define ROW1(a) a, NONE, NONE, NONE
#define ROW2(a, b) a, b, NONE, NONE
#define ROW3(a, b, c) a, b, c, NONE
#define ROW4(a, b, c, d) a, b, c, d
#endif

// No step writes a register that a step of its row reads: one lane may be ahead of another, and a
// lane computes the coefficients of a number of degree 2 one after the other.
//
// Explicit-Formulas Database, "xyzz": addition 12M + 2S, doubling 6M + 3S.
const uvec2 PROGRAM[] = uvec2[](
    // the beginning of an addition
    ROW4(MUL(U, PX, QZZ), MUL(V, QX, PZZ), MUL(S, PY, QZZZ), MUL(T, QY, PZZZ)),          // 16, 8
    ROW2(LINEAR(W, 1, V, -1, U, 0, U, 2), LINEAR(R, 1, T, -1, S, 0, S, 2)),              // 4p
    // V is 0 if and only if the two x are equal, T if the two y are equal.
    ROW4(MUL(V, W, W), MUL(T, R, R), MUL(QX, PZZ, QZZ), MUL(QY, PZZZ, QZZZ)),            // 16
    // its end
    ROW3(MUL(QZZ, W, V), MUL(QZZZ, U, V), MUL(PZZ, QX, V)),
    ROW2(LINEAR(PX, 1, T, -1, QZZ, -2, QZZZ, 6), LINEAR(B, 3, QZZZ, 1, QZZ, -1, T, 2)),  // 8p, 10p
    ROW3(MUL(U, R, B), MUL(W, S, QZZ), MUL(PZZZ, QY, QZZ)),                              // 40
    ROW1(LINEAR(PY, 1, U, -1, W, 0, W, 2)),                                              // 4p
    // the beginning of a doubling
    ROW1(LINEAR(U, 2, PY, 0, PY, 0, PY, 0)),                                             // 8p
    // V is 0 if and only if y is 0.
    ROW3(MUL(V, U, U), MUL(T, PX, PX), MUL(R, PZZ, PZZ)),                                // 64
    // its end, if the coefficient a is 0
    ROW1(LINEAR(R, 3, T, 0, T, 0, T, 0)),                                                // 6p
    ROW4(MUL(W, U, V), MUL(S, PX, V), MUL(T, R, R), MUL(B, V, PZZ)),                     // 36
    // 6p, 8p
    ROW3(LINEAR(PX, 1, T, -2, S, 0, S, 4), LINEAR(U, 3, S, -1, T, 0, T, 2), COPY(PZZ, B)),
    ROW3(MUL(V, R, U), MUL(S, W, PY), MUL(T, W, PZZZ)),                                  // 48
    ROW2(LINEAR(PY, 1, V, -1, S, 0, S, 2), COPY(PZZZ, T)),                               // 4p
    // its end for any a
    ROW3(MUL(W, U, V), MUL(S, PX, V), MUL(B, A, R)),                                     // 16
    ROW1(LINEAR(R, 3, T, 1, B, 0, T, 0)),                                                // 8p
    ROW3(MUL(T, R, R), MUL(B, W, PY), MUL(U, W, PZZZ)),                                  // 64
    // 6p, 8p
    ROW3(LINEAR(PX, 1, T, -2, S, 0, S, 4), LINEAR(W, 3, S, -1, T, 0, T, 2), COPY(PZZZ, U)),
    ROW2(MUL(U, R, W), MUL(T, V, PZZ)),                                                  // 64
    ROW2(LINEAR(PY, 1, U, -1, B, 0, B, 2), COPY(PZZ, T))                                 // 4p
);

// The rows at which the parts begin: two of an addition, two of a doubling, and the second one of a
// doubling for any a; behind them the number of rows.
#ifdef SERIAL
#define BOUNDARIES uint[](0, 10, 19, 23, 36, 50)
#else
#define BOUNDARIES uint[](0, 3, 7, 9, 14, 20)
#endif
uint part_begin(uint part) { return BOUNDARIES[part == 3 && !A_IS_ZERO ? 4 : part]; }
uint part_end(uint part) { return BOUNDARIES[part == 3 && !A_IS_ZERO ? 5 : part + 1]; }

uvec2 get_step(uint index) {
#ifdef SERIAL
    uvec2 step = NONE;
    // Two loops, which lavapipe unrolls; it unrolls no loop of 50 iterations.
    [[unroll]] for (uint i = 0; i < 5; ++i) {
        [[unroll]] for (uint k = 0; k < 10; ++k) {
            if (index == 10 * i + k) step = PROGRAM[10 * i + k];
        }
    }
    return step;
#else
    return PROGRAM[index];
#endif
}

// --- registers ---

uint lane() { return gl_LocalInvocationID.x % LANES; }

#ifdef PRIVATE_REGISTERS
const uint GROUPS = 1;
uint registers[REGISTERS * COORDINATE_LIMBS];
#else
const uint GROUPS = gl_WorkGroupSize.x / LANES;
#ifdef SERIAL
const uint VECTORS = (LIMBS + 3) / 4;
shared uvec4 registers[REGISTERS * DEGREE * VECTORS * GROUPS];
#else
shared uint registers[REGISTERS * COORDINATE_LIMBS * GROUPS];
#endif
#endif

// Lets the lanes of a group see what the others wrote.
void wait_for_lanes() {
    if (LANES > 1) {
        subgroupMemoryBarrierShared();
        subgroupBarrier();
    }
}

bool any_group(bool condition) { return LANES > 1 ? subgroupAny(condition) : condition; }

#ifdef SERIAL
#define COPY_LOOP [[dont_unroll]] for
#else
#define COPY_LOOP for
#endif

// Run the statement that follows for the limbs of a coordinate that belong to this lane, and for the
// coordinates of a point.
#define EACH_LIMB(i) COPY_LOOP (uint i = lane(); i < COORDINATE_LIMBS; i += LANES)
#define EACH_COORDINATE(k) COPY_LOOP (uint k = 0; k < 4; ++k)

#ifdef SERIAL
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
#else
uint register_at(uint index, uint limb) {
    return (index * COORDINATE_LIMBS + limb) * GROUPS + gl_LocalInvocationID.x / LANES % GROUPS;
}

uint get_limb(uint index, uint limb) { return registers[register_at(index, limb)]; }

void set_limb(uint index, uint limb, uint value) { registers[register_at(index, limb)] = value; }

void get_number(uint index, uint part, out NUMBER x) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) x[i] = get_limb(index, part * LIMBS + i);
}

void set_number(uint index, uint part, NUMBER x) {
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) set_limb(index, part * LIMBS + i, x[i]);
}
#endif

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

// z = m x + n y + l w + k p, which is between 0 and M.
void n_combine(int m, NUMBER x, int n, NUMBER y, int l, NUMBER w, int k, out NUMBER z) {
    int64_t t = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        t += int64_t(x[i]) * m + int64_t(y[i]) * n + int64_t(w[i]) * l + int64_t(modulus[i]) * k;
        z[i] = uint(t) & LIMB_MASK;
        t >>= LIMB_BITS;
    }
}

// Coefficient `part` of a step.
void run_step(uvec2 step, uint part) {
    uint ix = step.x >> 8 & 0xFF, iy = step.x >> 16 & 0xFF, iw = step.x >> 24;
    int m = int(step.y & 0xFF), n = int(step.y >> 8 & 0xFF) - 8;
    NUMBER x, y, w, z;
    if (m == 0) {
#if DEGREE == 1
        get_number(ix, 0, x);
        get_number(iy, 0, y);
        mul_limbs(x, y, z);
#else
        NUMBER v;
        // (x0 + x1 u) (y0 + y1 u) = x0 y0 + NONRESIDUE x1 y1 + (x0 y1 + x1 y0) u
        get_number(ix, 0, x);
        get_number(iy, part, y);
        get_number(ix, 1, w);
        get_number(iy, 1 - part, v);
        if (part == 0) {
            // x1 is below 16p.
            n_combine(NONRESIDUE, w, 0, w, 0, w, NONRESIDUE < 0 ? -16 * NONRESIDUE : 0, w);
        }
        mul_add_limbs(x, y, w, v, z);
#endif
    } else {
        get_number(ix, part, x);
        get_number(iy, part, y);
        get_number(iw, part, w);
        n_combine(m, x, n, y, int(step.y >> 16 & 0xFF) - 8, w, int(step.y >> 24), z);
    }
    set_number(step.x & 0xFF, part, z);
}

void run_part(uint part, bool enabled) {
#ifdef SERIAL
    uint end = part_end(part) * DEGREE;
    [[dont_unroll]] for (uint i = part_begin(part) * DEGREE; i < end; ++i) {
        if (enabled) run_step(get_step(i / DEGREE), i % DEGREE);
    }
#else
    [[dont_unroll]] for (uint row = part_begin(part); row < part_end(part); ++row) {
        wait_for_lanes();
        [[dont_unroll]] for (uint i = lane(); i < SLOTS * DEGREE; i += LANES) {
            uvec2 step = get_step(row * SLOTS + i / DEGREE);
            if (enabled && step.x != 0xFFFFFFFF) run_step(step, i % DEGREE);
        }
    }
    wait_for_lanes();
#endif
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
        if (any_group(now)) {
            run_part(part, now);
            if (now && part % 2 == 0 && register_is_zero(V)) {
                if (part == 0 && register_is_zero(T)) doubling = true;
                else infinity = true;
                now = false;
            }
        }
    }
    wait_for_lanes();
}

// --- points in memory ---

// Affine points as words of limb form, below p; (0, 0) is the point at infinity. load_name loads x
// and y, or -y, and returns whether it is another point.
#define AFFINE_IN(at, name) ELEMENTS_IN(at, name##_number)                                    \
    bool load_##name(bool enabled, uint index, bool negative) {                                \
        wait_for_lanes();                                                                     \
        if (enabled) {                                                                         \
            [[dont_unroll]] for (uint k = lane(); k < 4 * DEGREE; k += LANES) {               \
                NUMBER number;                                                                \
                if (k < 2 * DEGREE) {                                                         \
                    uint words[WORDS];                                                        \
                    load_##name##_number(2 * DEGREE * index + k, words);                      \
                    words_to_limbs(words, 0, number);                                         \
                    if (negative && k >= DEGREE) n_negate(number, number);                    \
                } else {                                                                      \
                    load_constant(ONE, number);                                               \
                    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                 \
                        number[i] = k % DEGREE == 0 ? number[i] : 0;                          \
                    }                                                                         \
                }                                                                             \
                set_number(QX + k / DEGREE, k % DEGREE, number);                              \
            }                                                                                 \
        }                                                                                     \
        wait_for_lanes();                                                                     \
        return enabled && !(register_is_zero(QX) && register_is_zero(QY));                     \
    }

// XYZZ points as lazily reduced limbs: limb i of X, Y, ZZ and ZZZ are one vector. load_name(i, first)
// loads a point to four registers and returns whether it is the point at infinity.
#define LIMBS_IN(at, name)                                                                    \
    layout(set = 0, binding = at, std430) readonly buffer name##_Points { uvec4 name[]; };    \
    bool load_##name(bool enabled, uint index, uint first) {                                   \
        wait_for_lanes();                                                                     \
        EACH_LIMB(i) {                                                                        \
            uvec4 v = enabled ? name[index * COORDINATE_LIMBS + i] : uvec4(0);                 \
            set_limb(first, i, v.x);                                                          \
            set_limb(first + 1, i, v.y);                                                      \
            set_limb(first + 2, i, v.z);                                                      \
            set_limb(first + 3, i, v.w);                                                      \
        }                                                                                     \
        wait_for_lanes();                                                                     \
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
        [[dont_unroll]] for (uint k = lane(); k < 4 * DEGREE; k += LANES) {                   \
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
    wait_for_lanes();
}

// Runs the block that follows for each element t of this group; all groups of a subgroup run it
// equally often, those without an element with enabled = false.
#define EACH_GROUP(t)                                                                         \
    uint t = gl_GlobalInvocationID.x / LANES;                                                 \
    uint t##_stride = gl_NumWorkGroups.x * GROUPS;                                            \
    for (uint t##_round = 0; t##_round < (count + t##_stride - 1) / t##_stride;               \
         ++t##_round, t += t##_stride)
