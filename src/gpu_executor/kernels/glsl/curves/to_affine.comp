// The affine form of XYZZ points, (X / ZZ, Y / ZZZ), and (0, 0) for infinity. With I = 1 / ZZZ, which
// all points of an invocation invert together (Montgomery's trick), 1 / ZZ = (ZZ I)^2, because
// ZZ^3 = ZZZ^2. `products` has the product of the ZZZ before each point but the first one.
//
// The words of a coordinate c have the factor R, and count here as a number with the factor M, the one of
// s c with s = R / M. The factors s cancel each other in ZZ I and in X / ZZ, which then has the factor R.
// Only Y I needs it.
//
// Products are those by rows, which compile faster (add_pairs.comp).
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(1)
const uint LANES = 1;
#include "lanes.glsl"
#include "number_inverse.glsl"

layout(push_constant) uniform Push { uint count; uint point_count; };
ELEMENTS_IN(0, points)
ELEMENTS_OUT(2, result)
layout(set = 0, binding = 3, std430) restrict buffer Products { uint products[]; };

const uint X = 0, Y = 1, ZZ = 2, ZZZ = 3;

// A coordinate of a point as it is stored, below p. Returns whether it is 0.
bool load_number(uint point, uint coordinate, out NUMBER x) {
    uint words[WORDS], any = 0;
    load_points(4 * point + coordinate, words);
    [[unroll]] for (uint i = 0; i < WORDS; ++i) any |= words[i];
    words_to_limbs(words, 0, x);
    return any == 0;
}

void store_number(uint point, uint coordinate, NUMBER x) {
    uint words[WORDS];
    n_to_words(x, words);
    store_result(2 * point + coordinate, words);
}

void main() {
    uint t = gl_GlobalInvocationID.x;
    if (t >= count) return;
    uint steps = (point_count - t - 1) / count + 1;
    NUMBER running, zzz, inverse, x, z;
    load_constant(ONE, running);
    for (uint step = 0; step < steps; ++step) {
        if (load_number(step * count + t, ZZZ, zzz)) continue;
        if (step > 0) {
            [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
                products[((step - 1) * LIMBS + i) * count + t] = running[i];
            }
        }
        mul_limbs_by_rows(running, zzz, running);
    }
    n_invert(running, running);
    for (uint step = steps; step-- > 0;) {
        uint point = step * count + t;
        if (load_number(point, ZZZ, zzz)) {
            n_clear(x);
            n_clear(z);
        } else {
            load_constant(ONE, z);
            if (step > 0) {
                [[unroll]] for (uint i = 0; i < LIMBS; ++i) {
                    z[i] = products[((step - 1) * LIMBS + i) * count + t];
                }
            }
            mul_limbs_by_rows(running, z, inverse);
            mul_limbs_by_rows(running, zzz, running);
            load_number(point, ZZ, z);
            mul_limbs_by_rows(z, inverse, z);
            mul_limbs_by_rows(z, z, z);
            load_number(point, X, x);
            mul_limbs_by_rows(x, z, x);
            load_number(point, Y, z);
            mul_limbs_by_rows(z, inverse, z);
            load_constant(TO_WORD_FORM, inverse);
            mul_limbs_by_rows(z, inverse, z);
        }
        store_number(point, X, x);
        store_number(point, Y, z);
    }
}
