// One step of folding in FRI: from the values of f(x) = f_0(x^a) + x f_1(x^a) + ... on a domain those
// of f_0(y) + alpha f_1(y) + ... at y = x^a, a = 2^LOG_ARITY. An invocation computes one value.
//
// The a points with one y are x z^j, z a root of unity of order a. A level halves them: with v and w
// the values at x z^j and at -x z^j, the next value is v + w + (alpha / (x z^j)) (v - w), for x^2,
// alpha^2 and z^2 in the next level. All halves are taken at the end, as one factor 1 / a.
//
// Values and results are elements of an extension of degree DEGREE over the prime field, or values
// are elements of the prime field (VALUES_DEGREE is 1). `factor` has, for each level and j, the matrix
// of the product by alpha / z^j (and by what the coset adds to it): row c has the coefficients of its
// product by the c-th element of the basis. 1 / a follows the matrices. 1 / x is
// low[e % 2^low_bits] * high[e >> low_bits], e the index of the result in natural order.
#version 460
#extension GL_GOOGLE_include_directive : require
#define PRODUCTS
// log2 of the results in a row; bits of e that `low` is for; whether rows are in bit-reversed order.
#define KERNEL_PUSH uint log_results; uint low_bits; uint reversed;
#include "../element.glsl"

layout(constant_id = ID_DEGREE) const uint DEGREE = 1;
layout(constant_id = ID_VALUES_DEGREE) const uint VALUES_DEGREE = 1;
layout(constant_id = ID_LOG_ARITY) const uint LOG_ARITY = 1;
const uint ARITY = 1u << LOG_ARITY;

ELEMENTS_IN(0, value)
ELEMENTS_IN(1, low)
ELEMENTS_IN(2, high)
ELEMENTS_IN(3, factor)
ELEMENTS_OUT(4, folded)

// Elements of one word stay in registers if the loops are unrolled. Wide ones do not anyway, and
// lavapipe takes long to compile each of their products.
#ifdef FAMILY_WIDE
#define UNROLL
#else
#define UNROLL [[unroll]]
#endif

uint reverse_bits(uint i, uint bits) { return bits == 0 ? 0 : bitfieldReverse(i) >> (32 - bits); }

void main() {
    EACH_ELEMENT(t) {
        uint row = t >> log_results, i = t & ((1u << log_results) - 1);
        uint e = reversed != 0 ? reverse_bits(i, log_results) : i;
        ELEMENT inverse_point, x, y;
        load_low(e & ((1u << low_bits) - 1), inverse_point);
        load_high(e >> low_bits, x);
        f_mul(inverse_point, x, inverse_point);
        ELEMENT v[ARITY * DEGREE];
        UNROLL for (uint j = 0; j < ARITY; ++j) {
            uint natural = (((row << LOG_ARITY) + j) << log_results) + i;
            uint at = reversed != 0 ? t * ARITY + reverse_bits(j, LOG_ARITY) : natural;
            UNROLL for (uint c = 0; c < VALUES_DEGREE; ++c)
                load_value(at * VALUES_DEGREE + c, v[j * DEGREE + c]);
        }
        UNROLL for (uint level = 0; level < LOG_ARITY; ++level) {
            uint half_ = ARITY >> (level + 1), own = level == 0 ? VALUES_DEGREE : DEGREE;
            uint matrices = ARITY - 2 * half_; // those of the levels before
            UNROLL for (uint j = 0; j < half_; ++j) {
                uint first = j * DEGREE, second = (j + half_) * DEGREE;
                ELEMENT difference[DEGREE];
                UNROLL for (uint c = 0; c < own; ++c) {
                    f_sub(v[first + c], v[second + c], x);
                    f_add(v[first + c], v[second + c], v[first + c]);
                    f_mul(x, inverse_point, difference[c]);
                }
                UNROLL for (uint k = 0; k < DEGREE; ++k) {
                    if (k >= own) f_zero(v[first + k]);
                    UNROLL for (uint c = 0; c < own; ++c) {
                        load_factor(((matrices + j) * DEGREE + c) * DEGREE + k, y);
                        f_mul(difference[c], y, x);
                        f_add(v[first + k], x, v[first + k]);
                    }
                }
            }
            f_square(inverse_point, inverse_point);
        }
        load_factor((ARITY - 1) * DEGREE * DEGREE, y);
        UNROLL for (uint k = 0; k < DEGREE; ++k) {
            f_mul(v[k], y, x);
            store_folded(t * DEGREE + k, x);
        }
    }
}
