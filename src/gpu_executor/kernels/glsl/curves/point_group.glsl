// Operations on XYZZ points by groups of invocations: on a GPU the LANES invocations of a group
// compute the products of an addition that do not depend on each other at the same time; on a CPU a
// group is one invocation. A table lists the steps of each operation, and a loop with one product in
// its body runs them: a driver that inlines every product of an addition compiles it for minutes.
// With PRIVATE_REGISTERS, a group is one invocation with registers of its own.
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
#ifdef PRIVATE_REGISTERS
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
const uint SLOTS = 4;

// A step computes z = x y, or the linear combination z = m x + n y + l w + k p with small integers.
// NONE does nothing. In a comment, "8p" bounds the number that a step computes, where it is not
// below 2p, and "100" the product of two numbers, in units of p^2. The largest is 100: an X of 10p
// times another, so the slack M / p must be at least 100 (`kernels/curves.py`).
#define STEP(z, x, y, w, m, n, l, k)                                                          \
    uvec2((z) | (x) << 8 | (y) << 16 | (w) << 24, (m) | (n + 8) << 8 | (l + 8) << 16 | (k) << 24)
#define MUL(z, x, y) STEP(z, x, y, 0, 0, 0, 0, 0)
#define LINEAR(z, m, x, n, y, l, w, k) STEP(z, x, y, w, m, n, l, k)
#define NONE uvec2(0xFFFFFFFF)

// Explicit-Formulas Database, "xyzz": addition 12M + 2S, doubling 6M + 3S. The steps of a row run at
// the same time.
const uvec2 PROGRAM[] = uvec2[](
    // 0: the beginning of an addition
    MUL(U, PX, QZZ), MUL(V, QX, PZZ), MUL(S, PY, QZZZ), MUL(T, QY, PZZZ),              // 16, 8
    LINEAR(W, 1, V, -1, U, 0, U, 2), LINEAR(R, 1, T, -1, S, 0, S, 2), NONE, NONE,      // 4p
    // V is 0 if and only if the two x are equal, T if the two y are equal.
    MUL(V, W, W), MUL(T, R, R), MUL(QZZ, PZZ, QZZ), MUL(QZZZ, PZZZ, QZZZ),             // 16
    // 3: its end
    MUL(W, W, V), MUL(U, U, V), MUL(PZZ, QZZ, V), NONE,
    LINEAR(PX, 1, T, -1, W, -2, U, 6), LINEAR(T, 3, U, 1, W, -1, T, 2), NONE, NONE,    // 8p, 10p
    MUL(R, R, T), MUL(S, S, W), MUL(PZZZ, QZZZ, W), NONE,                              // 40
    LINEAR(PY, 1, R, -1, S, 0, S, 2), NONE, NONE, NONE,                                // 4p
    // 7: the beginning of a doubling
    LINEAR(U, 2, PY, 0, PY, 0, PY, 0), NONE, NONE, NONE,                               // 8p
    // V is 0 if and only if y is 0.
    MUL(V, U, U), MUL(T, PX, PX), MUL(R, PZZ, PZZ), NONE,                              // 64
    // 9: its end, if the coefficient a is 0
    LINEAR(R, 3, T, 0, T, 0, T, 0), NONE, NONE, NONE,                                  // 6p
    MUL(W, U, V), MUL(S, PX, V), MUL(T, R, R), MUL(PZZ, V, PZZ),                       // 36
    LINEAR(PX, 1, T, -2, S, 0, S, 4), LINEAR(U, 3, S, -1, T, 0, T, 2), NONE, NONE,     // 6p, 8p
    MUL(U, R, U), MUL(B, W, PY), MUL(PZZZ, W, PZZZ), NONE,                             // 48
    LINEAR(PY, 1, U, -1, B, 0, B, 2), NONE, NONE, NONE,                                // 4p
    // 14: its end for any a
    MUL(W, U, V), MUL(S, PX, V), MUL(R, A, R), MUL(PZZ, V, PZZ),                       // 16
    LINEAR(R, 3, T, 1, R, 0, T, 0), NONE, NONE, NONE,                                  // 8p
    MUL(T, R, R), MUL(B, W, PY), MUL(PZZZ, W, PZZZ), NONE,                             // 64
    LINEAR(PX, 1, T, -2, S, 0, S, 4), LINEAR(U, 3, S, -1, T, 0, T, 2), NONE, NONE,     // 6p, 8p
    MUL(U, R, U), NONE, NONE, NONE,                                                    // 64
    LINEAR(PY, 1, U, -1, B, 0, B, 2), NONE, NONE, NONE                                 // 4p
);

// The rows of the four parts.
uint part_begin(uint part) { return part == 3 && !A_IS_ZERO ? 14 : uint[4](0, 3, 7, 9)[part]; }
uint part_end(uint part) { return part == 3 && !A_IS_ZERO ? 20 : uint[4](3, 7, 9, 14)[part]; }

// --- registers ---

#ifdef PRIVATE_REGISTERS
const uint GROUPS = 1;
uint registers[REGISTERS * COORDINATE_LIMBS];
#else
const uint GROUPS = gl_WorkGroupSize.x / LANES;
shared uint registers[REGISTERS * COORDINATE_LIMBS * GROUPS];
#endif

uint lane() { return gl_LocalInvocationID.x % LANES; }

uint register_at(uint index, uint limb) {
    return (index * COORDINATE_LIMBS + limb) * GROUPS + gl_LocalInvocationID.x / LANES % GROUPS;
}

// Lets the lanes of a group see what the others wrote.
void wait_for_lanes() {
#ifndef SERIAL
    if (LANES > 1) {
        subgroupMemoryBarrierShared();
        subgroupBarrier();
    }
#endif
}

bool any_group(bool condition) { return LANES > 1 ? subgroupAny(condition) : condition; }

// Runs the statement that follows for the limbs of a coordinate that belong to this lane.
#define EACH_LIMB(i) for (uint i = lane(); i < COORDINATE_LIMBS; i += LANES)

#ifdef SERIAL
#define EACH_COPIED(i) [[dont_unroll]] for (uint i = 0; i < LIMBS; ++i)
#else
#define EACH_COPIED(i) [[unroll]] for (uint i = 0; i < LIMBS; ++i)
#endif

void get_number(uint index, uint part, out NUMBER x) {
    EACH_COPIED(i) x[i] = registers[register_at(index, part * LIMBS + i)];
}

void set_number(uint index, uint part, NUMBER x) {
    EACH_COPIED(i) registers[register_at(index, part * LIMBS + i)] = x[i];
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

// P = P + Q, or with `doubles` P = 2 P. Q is lost. `infinity` and `other_infinity` say whether P and
// Q are the point at infinity.
void add_points(bool enabled, bool doubles, inout bool infinity, bool other_infinity) {
    if (enabled && !doubles && infinity && !other_infinity) {
        EACH_LIMB(i) {
            for (uint k = 0; k < 4; ++k) {
                registers[register_at(PX + k, i)] = registers[register_at(QX + k, i)];
            }
        }
        infinity = false;
        enabled = false;
    }
    bool now = enabled && !doubles && !infinity && !other_infinity; // takes part in this part
    bool doubling = enabled && doubles && !infinity;
    [[dont_unroll]] for (uint part = 0; part < 4; ++part) {
        if (part == 2) now = doubling;
        if (any_group(now)) {
            [[dont_unroll]] for (uint row = part_begin(part); row < part_end(part); ++row) {
                wait_for_lanes();
                [[dont_unroll]] for (uint i = lane(); i < SLOTS * DEGREE; i += LANES) {
                    uvec2 step = PROGRAM[row * SLOTS + i / DEGREE];
                    if (now && step.x != 0xFFFFFFFF) run_step(step, i % DEGREE);
                }
            }
            wait_for_lanes();
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
            registers[register_at(first, i)] = v.x;                                           \
            registers[register_at(first + 1, i)] = v.y;                                       \
            registers[register_at(first + 2, i)] = v.z;                                       \
            registers[register_at(first + 3, i)] = v.w;                                       \
        }                                                                                     \
        wait_for_lanes();                                                                     \
        return register_is_zero(first + 2);                                                   \
    }
#define LIMBS_OUT(at, name)                                                                   \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { uvec4 name[]; };   \
    void store_##name(uint index, bool infinity) {                                            \
        EACH_LIMB(i) {                                                                        \
            uvec4 v = uvec4(                                                                  \
                registers[register_at(PX, i)], registers[register_at(PY, i)],                 \
                registers[register_at(PZZ, i)], registers[register_at(PZZZ, i)]               \
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
    EACH_LIMB(i) registers[register_at(A, i)] = constants[COEFFICIENT_A * LIMBS + i];
    wait_for_lanes();
}

// Runs the block that follows for each element t of this group; all groups of a subgroup run it
// equally often, those without an element with enabled = false.
#define EACH_GROUP(t)                                                                         \
    uint t = gl_GlobalInvocationID.x / LANES;                                                 \
    uint t##_stride = gl_NumWorkGroups.x * GROUPS;                                            \
    for (uint t##_round = 0; t##_round < (count + t##_stride - 1) / t##_stride;               \
         ++t##_round, t += t##_stride)
