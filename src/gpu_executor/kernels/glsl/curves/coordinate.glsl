// Coordinates of points: elements of a prime field (DEGREE 1), or of an extension of degree 2 with
// u^2 = NONRESIDUE, a small integer (DEGREE 2).
//
// Inside these kernels a number is LIMBS limbs in Montgomery form with the factor
// M = 2^(LIMBS * LIMB_BITS), and lazily reduced: any number below M that is congruent. Only a
// product reduces. If x < a p and y < b p, the product of x and y is below (a b p / M + 1) p, so
// below 2p where a b <= M / p. Comments state the bounds; `kernels/curves.py` chooses limbs with
// enough slack M / p. Functions on numbers begin with n_, those on whole coordinates with c_.

#extension GL_EXT_control_flow_attributes : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require

#include "../spec_ids.glsl"

#define SPEC_LIMB(n) layout(constant_id = ID_MODULUS + n) const uint MODULUS##n = 0;
SPEC_LIMB(0) SPEC_LIMB(1) SPEC_LIMB(2) SPEC_LIMB(3) SPEC_LIMB(4) SPEC_LIMB(5) SPEC_LIMB(6)
SPEC_LIMB(7) SPEC_LIMB(8) SPEC_LIMB(9) SPEC_LIMB(10) SPEC_LIMB(11) SPEC_LIMB(12) SPEC_LIMB(13)
SPEC_LIMB(14) SPEC_LIMB(15) SPEC_LIMB(16) SPEC_LIMB(17) SPEC_LIMB(18) SPEC_LIMB(19) SPEC_LIMB(20)
SPEC_LIMB(21) SPEC_LIMB(22) SPEC_LIMB(23) SPEC_LIMB(24) SPEC_LIMB(25) SPEC_LIMB(26) SPEC_LIMB(27)

// The modulus is a specialization constant, so that the driver computes its multiples when it
// compiles the pipeline.
#define MODULUS_CONSTANTS                                                                     \
    uint[28](                                                                                 \
        MODULUS0, MODULUS1, MODULUS2, MODULUS3, MODULUS4, MODULUS5, MODULUS6, MODULUS7,       \
        MODULUS8, MODULUS9, MODULUS10, MODULUS11, MODULUS12, MODULUS13, MODULUS14, MODULUS15, \
        MODULUS16, MODULUS17, MODULUS18, MODULUS19, MODULUS20, MODULUS21, MODULUS22,          \
        MODULUS23, MODULUS24, MODULUS25, MODULUS26, MODULUS27                                 \
    )
#ifdef F64_LIMBS
// Two words of each limb, as an integer from constant 0 on and as a float64 from constant 14 on. An
// array of such limbs would be in memory: drivers index only arrays of constants when they compile.
#define MODULUS_WORDS(at) uvec2(MODULUS_CONSTANTS[at], MODULUS_CONSTANTS[at + 1])
#define MODULUS_LIMB(i) packUint2x32(MODULUS_WORDS(2 * (i)))
#define MODULUS_F64(i) packDouble2x32(MODULUS_WORDS(14 + 2 * (i)))
#else
#define modulus MODULUS_CONSTANTS
#define MODULUS_LIMB(i) modulus[i]
#endif

#define LIMB_FORM
#include "../words.glsl"
#include "../limbs.glsl"
#ifdef F64_LIMBS
#include "../f64_limbs.glsl"
#else
#include "../products.glsl"
#endif
#include "../words_memory.glsl"

// --- numbers ---

#define NUMBER LIMB[LIMBS]

// Whether a product is 0 mod p: it is below 2p, so it is 0 or p.
bool n_is_zero(NUMBER x) {
    LIMB any = 0, different = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        any |= x[i];
        different |= x[i] ^ MODULUS_LIMB(i);
    }
    return any == 0 || different == 0;
}

// z = p - x, for an x of at most p.
void n_negate(NUMBER x, out NUMBER z) {
    SIGNED_LIMB carry = 0;
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
        SIGNED_LIMB limb = SIGNED_LIMB(MODULUS_LIMB(i)) - SIGNED_LIMB(x[i]) + carry;
        z[i] = LIMB(limb) & LIMB_MASK;
        carry = limb >> LIMB_BITS;
    }
}

// The constants of a curve, as numbers in limbs; `kernels/curves.py` writes them in this order.
const uint ONE = 0, TO_LIMB_FORM = 1, TO_WORD_FORM = 2, COEFFICIENT_A = 3;
const uint COEFFICIENT_B = COEFFICIENT_A + DEGREE;
const uint IMAGE_TO_LIMB_FORM = COEFFICIENT_B + DEGREE, FACTOR_CUBED = IMAGE_TO_LIMB_FORM + 1;

#ifdef F64_LIMBS
#define LIMB_WORDS uvec2
#define JOIN_WORDS packUint2x32
#else
#define LIMB_WORDS uint
#define JOIN_WORDS
#endif
#define CONSTANTS(at)                                                                         \
    layout(set = 0, binding = at, std430) readonly buffer Constants { LIMB_WORDS constants[]; };  \
    void load_constant(uint index, out NUMBER z) {                                            \
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) {                                         \
            z[i] = JOIN_WORDS(constants[index * LIMBS + i]);                                  \
        }                                                                                     \
    }

// Words in Montgomery form with the factor R = 2^(32 * WORDS), as arrays of users hold them, to limb
// form: the factor is M^2 / R. Below 2p.
void n_from_words(uint x[WORDS], NUMBER to_limb_form, out NUMBER z) {
    NUMBER limbs;
    words_to_limbs(x, 0, limbs);
    mul_limbs(limbs, to_limb_form, z);
}

// The words of a number below 2p.
void n_to_words(NUMBER x, out uint z[WORDS]) {
    NUMBER p, reduced;
    load_modulus_limbs(p);
    reduce_once(x, p, reduced);
    limbs_to_words(reduced, z);
}

#if DEGREE == 1
#define COORDINATE_LIMBS LIMBS
#else
const uint COORDINATE_LIMBS = DEGREE * LIMBS;
layout(constant_id = ID_NONRESIDUE) const int NONRESIDUE = -1;
#endif

// Runs the block that follows for each element t of this group; all groups of a subgroup run it
// equally often, those without an element with enabled = false.
#define EACH_GROUP(t)                                                                         \
    uint t = gl_GlobalInvocationID.x / LANES;                                                 \
    uint t##_stride = gl_NumWorkGroups.x * GROUPS;                                            \
    for (uint t##_round = 0; t##_round < (count + t##_stride - 1) / t##_stride;               \
         ++t##_round, t += t##_stride)
