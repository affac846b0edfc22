// Numbers modulo p as residues: a group of 16 neighbouring invocations computes one product.
//
// A product of limbs is a chain of multiplications and carries in one invocation, 2,000 cycles at 381 bits
// on an NVIDIA H200. Where few products wait for each other, most lanes of a subgroup idle meanwhile.
// Residues have no carries: lane l has the number modulo a[l] and modulo b[l], RESIDUES moduli of 30 bits in
// each of two bases with the products A and B. A product takes each lane about 50 multiply-adds, in a
// chain of four reductions and two exchanges through shared memory.
//
// Montgomery's product in residues (Bajard, Didier and Kornerup), x y / A mod p:
//
//     s[i] = x y * (-1 / p) / (A / a[i])  mod a[i]       Q = sum of s[i] A / a[i] = -x y / p  mod A
//     t[j] = (x y + Q p) / A / (B / b[j])  mod b[j]      the result is z = (x y + Q p) / A
//     z = sum of t[j] B / b[j] - k B                     mod a[i], for an integer k
//
// Q is not reduced modulo A. It is below (RESIDUES + 0.1) A, so z is below x y / A + (RESIDUES + 0.1) p,
// and below 16p where x y is at most A p. k is the integer next to the sum of t[j] / b[j], because z is much less
// than B. Moduli are 2^30 - c with c below 2^10, so that t[j] / 2^30 is close enough.
//
// A number is the integer that its residues determine, and it is not negative: only products reduce it
// modulo p. Its residues are not always below their modulus: those of a product are below
// 2^30 + 2^21, and factors have 32 bits at most. `kernels/residues.py` chooses the moduli and
// computes the constants.
//
// Include coordinate.glsl first.

layout(constant_id = ID_RESIDUES) const uint RESIDUES = 14;
const uint ROW = 16;
const uint ROWS = 6;
const uint RESIDUE_BITS = 30;
const uint RESIDUE_MASK = (1u << RESIDUE_BITS) - 1;
const uint COLUMNS = (RESIDUE_BITS * RESIDUES + LIMB_BITS - 1) / LIMB_BITS;

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in; // ROWS * ROW

// The constants of each lane, in the order of `kernels/residues.py`.
const uint OFFSET_A = 0, OFFSET_B = 1, TO_S = 2, TO_T = 3, MINUS_B = 4, FROM_T = 5, MULTIPLE_A = 6,
    MULTIPLE_B = 7, WORD_FACTOR_A = 8, WORD_FACTOR_B = 9, LIMB_FACTOR_A = 10, LIMB_FACTOR_B = 11,
    THREE_B = 12, CUBE_ROOT_A = 13, CUBE_ROOT_B = 14, LIMBS_OF_B = 15, EXTEND_A = 16, EXTEND_B = EXTEND_A + RESIDUES,
    LIMBS_OF_T = EXTEND_B + RESIDUES, WEIGHTS_A = LIMBS_OF_T + RESIDUES, WEIGHTS_B = WEIGHTS_A + LIMBS;

layout(set = 0, binding = 1, std430) readonly buffer Constants { uint lane_constants[]; };

#define LANE (gl_LocalInvocationID.x % ROW)
#define OWN_ROW (gl_LocalInvocationID.x / ROW)
#define LANE_CONSTANT(i) lane_constants[(i) * ROW + LANE]

// A number: its residues modulo a[l] and b[l].
#define RESIDUE uvec2

shared uint exchanged_s[ROWS * ROW];
shared uint exchanged_t[ROWS * ROW];
shared RESIDUE products[ROWS * ROW];

// The constants that a lane has in registers.
uvec2 offset; // 2^30 - modulus
RESIDUE multiple; // of p, larger than what is subtracted
uint to_s, to_t, minus_b, from_t, three_b;
uint extend_a[RESIDUES], extend_b[RESIDUES];

void load_lane() {
    offset = uvec2(LANE_CONSTANT(OFFSET_A), LANE_CONSTANT(OFFSET_B));
    multiple = RESIDUE(LANE_CONSTANT(MULTIPLE_A), LANE_CONSTANT(MULTIPLE_B));
    to_s = LANE_CONSTANT(TO_S);
    to_t = LANE_CONSTANT(TO_T);
    minus_b = LANE_CONSTANT(MINUS_B);
    from_t = LANE_CONSTANT(FROM_T);
    three_b = LANE_CONSTANT(THREE_B);
    [[unroll]] for (uint i = 0; i < RESIDUES; ++i) {
        extend_a[i] = LANE_CONSTANT(EXTEND_A + i);
        extend_b[i] = LANE_CONSTANT(EXTEND_B + i);
    }
}

// x mod 2^30 - c, below 2^30 + 2^21, for every x.
uint reduce(uint64_t x, uint c) {
    uint low = uint(x) & RESIDUE_MASK, middle = uint(x >> RESIDUE_BITS) & RESIDUE_MASK;
    uint high = uint(x >> 32) >> 28;
    uint64_t y = uint64_t(middle) * c + (low + high * (c * c));
    return (uint(y) & RESIDUE_MASK) + uint(y >> RESIDUE_BITS) * c;
}

#define WIDE(x, y) (uint64_t(x) * (y))

RESIDUE scale(RESIDUE x, uint k) {
    return RESIDUE(reduce(WIDE(x.x, k), offset.x), reduce(WIDE(x.y, k), offset.y));
}

// x y + v w: every row computes a product of its own. t is what `to_limbs` needs.
RESIDUE mul_add(RESIDUE x, RESIDUE y, RESIDUE v, RESIDUE w, out uint t) {
    uint base = OWN_ROW * ROW;
    uint a = reduce(WIDE(x.x, y.x) + WIDE(v.x, w.x), offset.x);
    exchanged_s[gl_LocalInvocationID.x] = reduce(WIDE(a, to_s), offset.x);
    uint b = reduce(WIDE(x.y, y.y) + WIDE(v.y, w.y), offset.y);
    uint64_t sum = WIDE(b, to_t);
    barrier();
    [[unroll]] for (uint i = 0; i < RESIDUES; ++i) sum += WIDE(exchanged_s[base + i], extend_a[i]);
    t = reduce(sum, offset.y);
    exchanged_t[gl_LocalInvocationID.x] = t;
    barrier();
    uint quotient = 1u << 25;
    sum = 0;
    [[unroll]] for (uint i = 0; i < RESIDUES; ++i) {
        uint other = exchanged_t[base + i];
        quotient += other >> 4;
        sum += WIDE(other, extend_b[i]);
    }
    // At most 15 products of 2^30 and 2^30 + 2^21: no overflow.
    sum += WIDE(quotient >> 26, minus_b);
    return RESIDUE(reduce(sum, offset.x), reduce(WIDE(t, from_t), offset.y));
}

RESIDUE mul(RESIDUE x, RESIDUE y) {
    uint t;
    return mul_add(x, y, RESIDUE(0), RESIDUE(0), t);
}

// Lets all rows read the product of each row.
void share(RESIDUE x) {
    products[gl_LocalInvocationID.x] = x;
    barrier();
}

RESIDUE product(uint row) { return products[row * ROW + LANE]; }

// The residues of limbs, and whether they are 0 or p.
#define RESIDUES_IN(at, name)                                                                 \
    layout(set = 0, binding = at, std430) readonly buffer name##_Points { uint name[]; };     \
    RESIDUE load_##name(uint point, uint coordinate, out bool zero) {              \
        uint64_t a = 0, b = 0;                                                                \
        uint any = 0, different = 0;                                                          \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                         \
            uint limb = name[(point * LIMBS + i) * 4 + coordinate];                           \
            any |= limb;                                                                      \
            different |= limb ^ MODULUS_LIMB(i);                                              \
            a += WIDE(limb, LANE_CONSTANT(WEIGHTS_A + i));                                    \
            b += WIDE(limb, LANE_CONSTANT(WEIGHTS_B + i));                                    \
        }                                                                                     \
        zero = any == 0 || different == 0;                                                    \
        return RESIDUE(reduce(a, offset.x), reduce(b, offset.y));                   \
    }

shared uvec2 columns[ROWS * ROW];

// The limbs below p of the product of each row, in its first lane; `t` is that of `mul_add`.
void to_limbs(uint t, out NUMBER z) {
    uint base = OWN_ROW * ROW, quotient = 1u << 25;
    uint64_t sum = 0;
    [[unroll]] for (uint i = 0; i < RESIDUES; ++i) {
        uint other = exchanged_t[base + i];
        quotient += other >> 4;
        sum += WIDE(other, LANE_CONSTANT(LIMBS_OF_T + i));
    }
    columns[gl_LocalInvocationID.x] = uvec2(uint(sum), uint(sum >> 32));
    barrier();
    if (LANE != 0) return;
    quotient >>= 26;
    int64_t carry = 0;
    [[unroll]] for (uint i = 0; i < COLUMNS; ++i) {
        sum = uint64_t(columns[base + i].y) << 32 | columns[base + i].x;
        carry += int64_t(sum & LIMB_MASK) - int64_t(WIDE(quotient, lane_constants[LIMBS_OF_B * ROW + i]));
        if (i < LIMBS) z[i] = uint(carry) & LIMB_MASK;
        carry = (carry >> LIMB_BITS) + int64_t(sum >> LIMB_BITS);
    }
    [[unroll]] for (uint k = 8; k > 0; k /= 2) {
        NUMBER reduced;
        int64_t borrow = 0;
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
            borrow += int64_t(z[i]) - int64_t(WIDE(MODULUS_LIMB(i), k));
            reduced[i] = uint(borrow) & LIMB_MASK;
            borrow >>= LIMB_BITS;
        }
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = borrow < 0 ? z[i] : reduced[i];
    }
}
