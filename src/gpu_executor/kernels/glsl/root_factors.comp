// Factors of the roots of blocks: y has w^e and its quotient (shoup.glsl) for the powers of w in
// bit-reversed order, i = 0 .. count - 1.
//
// r = w^e 2^261 mod p comes from two tables. Montgomery's reduction of r gives both numbers:
// w^e = (r + m p) / 2^261, where m = -r / p mod 2^261 is the quotient of w^e 2^261 by p.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "spec_ids.glsl"
layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(push_constant) uniform Push { uint count; uint log_count; uint low_bits; };
#include "shoup.glsl"

layout(constant_id = ID_NEGATIVE_INVERSE) const int NEGATIVE_INVERSE = 1;

layout(set = 0, binding = 0, std430) readonly buffer Low { uvec4 low[]; };
layout(set = 0, binding = 1, std430) readonly buffer High { uvec4 high[]; };
layout(set = 0, binding = 2, std430) writeonly buffer YBy4 { ivec4 y_by4[]; };
layout(set = 0, binding = 2, std430) writeonly buffer YBy2 { ivec2 y_by2[]; };

// z = (x y + m p) / 2^261 and m, for x and y below 2^256.
void multiply(NUMBER x, NUMBER y, out NUMBER z, out NUMBER m) {
    LOAD_MINUS_P
    int64_t t = 0;
    [[unroll]] for (int k = 0; k < 17; ++k) {
        EACH_LIMB(i) {
            if (k - i >= 0 && k - i < 9) t += mul_signed(x[i], y[k - i]);
        }
        EACH_LIMB(i) {
            if (i < k && k - i < 9) t -= mul_signed(m[i], minus_p[k - i]);
        }
        if (k < 9) {
            m[k] = (int(t) * NEGATIVE_INVERSE) & NUMBER_MASK;
            t -= mul_signed(m[k], minus_p[0]);
        } else {
            z[k - 9] = int(t) & NUMBER_MASK;
        }
        t >>= 29;
    }
    z[8] = int(t);
}

void main() {
    for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
        uint e = log_count == 0 ? 0 : bitfieldReverse(i) >> (32 - log_count);
        uint e_low = e & ((1u << low_bits) - 1u), e_high = e >> low_bits;
        NUMBER a, b, r, m, w, one;
        unpack_words(low[2 * e_low], low[2 * e_low + 1], a);
        unpack_words(high[2 * e_high], high[2 * e_high + 1], b);
        multiply(a, b, r, m);
        EACH_LIMB(k) one[k] = k == 0 ? 1 : 0;
        multiply(r, one, w, m);
        y_by4[i] = ivec4(w[0], w[1], w[2], w[3]);
        y_by4[count + i] = ivec4(w[4], w[5], w[6], w[7]);
        y_by4[2 * count + i] = ivec4(w[8], m[0], m[1], m[2]);
        y_by4[3 * count + i] = ivec4(m[3], m[4], m[5], m[6]);
        y_by2[8 * count + i] = ivec2(m[7], m[8]);
    }
}
