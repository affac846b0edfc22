// Sums of segments of points, for the weighted sums of buckets. Bucket k of a window is in row k >> column_bits
// and in column k % 2^column_bits of a table; the sums of all rows and of all columns take two additions a
// bucket. sum_pairs.comp takes four times as long for the same number of additions, but it is made for those
// that wait for each other: an invocation here adds the points of a segment one after the other.
//
// Element t is sum t % sums of family t / sums % 2 of a window: family 0 are columns, family 1 rows. With
// column_bits, both have the same `points` points of a window, and a column has neighbouring sums of its
// segments. Without, each family has its own points, and a segment neighbouring ones. Sums behind the last
// segment are the point at infinity.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "coordinate.glsl"
CONSTANTS(1)
#include "point_full_f64.glsl"

layout(push_constant) uniform Push {
    uint count; uint sums; uint points; uint column_length; uint row_length; uint column_bits;
};
LIMBS_IN(0, elements)
LIMBS_OUT(2, results)

// The XYZZ point 2 P for a point P in memory whose Y is not 0: 8M + 4S. As double_affine, with the
// denominators of P: R = 2^d (3 X^2 + a ZZ^2), P = 2^d 2 Y.
void double_full(uint at, out NUMBER sx, out NUMBER sy, out NUMBER szz, out NUMBER szzz) {
    const uint X = 0, MINUS_Y = 1, P = 2, R = 3, P2 = 4, P3 = 5, Q = 6, R2 = 7, S = 8, T = 9, ZZ = 10, ZZZ = 11;
    const uint first[] = uint[](ZZ, R2, X, P, P, X, R, MINUS_Y, R, ZZ, ZZZ);
    const uint second[] = uint[](ZZ, R, X, P, P2, P2, R, P3, Q, P2, P3);
    const uint product[] = uint[](R2, T, R, P2, P3, Q, R2, S, T, ZZ, ZZZ);
    LIMB numbers[12 * LIMBS];
    NUMBER a, b, z;
#define LOAD(at, z) [[unroll]] for (uint i = 0; i < LIMBS; ++i) z[i] = numbers[(at) * LIMBS + i];
#define STORE(z, at) [[unroll]] for (uint i = 0; i < LIMBS; ++i) numbers[(at) * LIMBS + i] = z[i];
    load_elements(at, 0, z);
    STORE(z, X)
    load_elements(at, 1, a);
    n_clear(b);
    n_sub(b, a, 4, z);
    STORE(z, MINUS_Y)
    n_mul_add(1, a, a, z);
    n_mul_add(FACTOR_SHIFT, z, z, z);                   // 16
    STORE(z, P)
    load_elements(at, 2, z);
    STORE(z, ZZ)
    load_elements(at, 3, z);
    STORE(z, ZZZ)
    load_constant(SCALED_A, z);
    STORE(z, R)
    // The number of the next step is opaque for the compiler: there is one work-group along y.
    [[dont_unroll]] for (uint step = 0; step < 11; step += gl_NumWorkGroups.y) {
        LOAD(first[step], a)
        LOAD(second[step], b)
        mul_limbs(a, b, z);
        if (product[step] == R) {
            LOAD(T, a)                                  // a ZZ^2; 1.1
            n_mul_add(3, z, a, z);                      // 3 * 2.1 + 1.1
        } else if (step == 6) {
            LOAD(Q, a)                                  // 1.8
            n_clear(b);
            n_mul_add(FACTOR_SHIFT, z, z, z);
            n_sub_sum(z, b, a, MULTIPLE_SUM, z);        // X; 2 * 2 + 4
            n_sub(a, z, MULTIPLE_DOUBLE, a);            // Q - X; 9.8
            STORE(a, Q)
        }
        STORE(z, product[step])
    }
    LOAD(R2, sx)
    LOAD(S, a)
    LOAD(T, b)
    n_mul_add(1, a, b, sy);                             // 1.2 + 2.3
    LOAD(ZZ, szz)
    LOAD(ZZZ, szzz)
#undef LOAD
#undef STORE
}

// Adds a point in memory to the XYZZ point (sx, sy, szz, szzz): 12M + 2S. X is below 8, Y below 4, ZZ / 2^d
// and ZZZ / 2^d are below 2.6. The coordinates are loaded where they are needed, so that few are in
// registers.
void add_full(
    uint at, inout NUMBER sx, inout NUMBER sy, inout NUMBER szz, inout NUMBER szzz,
    inout bool infinity
) {
    NUMBER addend, p, r, s, u, v, w;
    load_elements(at, 2, w);
    if (n_is_multiple(w, 1)) return; // the point at infinity: 0, whose half is 0, or p
    if (infinity) {
        load_elements(at, 0, sx);
        load_elements(at, 1, sy);
        n_copy(w, szz);
        load_elements(at, 3, szzz);
        infinity = false;
        return;
    }
    mul_limbs(sx, w, u);                                // 1.4; U1
    load_elements(at, 0, v);
    n_subtract_from(MULTIPLE_FIRST, u, addend);
    mul_plus_limbs(v, szz, addend, p);                  // 3.4; P
    mul_limbs(szz, w, szz);
    load_elements(at, 3, w);
    mul_limbs(sy, w, s);                                // 1.2; S1
    load_elements(at, 1, v);
    n_subtract_from(MULTIPLE_FIRST, s, addend);
    mul_plus_limbs(v, szzz, addend, r);                 // 3.2; R
    mul_limbs(szzz, w, szzz);
    square_limbs(p, v);                                 // 1.2
    if (n_is_zero_below_3p(v)) {
        infinity = !n_is_multiple(r, 3);
        if (!infinity) {
            load_elements(at, 1, w);
            infinity = n_is_multiple(w, 4);
            double_full(at, sx, sy, szz, szzz);
        }
        return;
    }
    mul_limbs(u, v, u);                                 // 1.1; Q
    mul_limbs(szz, v, szz);
    mul_limbs(p, v, w);                                 // 1.1; P^3
    [[unroll]] for (uint i = 0; i < LIMBS; ++i) addend[i] = w[i] + 2 * u[i];
    n_subtract_from(MULTIPLE_SUM, addend, addend);
    square_plus_limbs(r, FACTOR_SHIFT, addend, sx);     // 6.4: 2 * 1.2 + 4
    n_sub(u, sx, MULTIPLE_X, u);                        // 8.1
    multiple_of_modulus(1, addend);
    mul_sub_limbs(r, u, s, w, addend, sy);              // 2.5: 1 + 0.5 + 1
    mul_limbs(szzz, w, szzz);
}

void main() {
    begin();
    EACH_GROUP(t) {
        if (t >= count) return;
        uint family = t / sums % 2, sum = t % sums, window = t / sums / 2;
        uint length = family == 0 ? column_length : row_length, stride = 1, first = sum * length;
        bool has_points = first < points;
        if (column_bits == 0) {
            window = 2 * window + family;
        } else if (family == 0) {
            uint segments = (points >> column_bits) / length; // of a column
            stride = 1u << column_bits;
            first = sum % segments * length * stride + sum / segments;
        }
        NUMBER sx, sy, szz, szzz;
        bool infinity = true;
        uint end = has_points ? length : 0;
        [[dont_unroll]] for (uint i = 0; i < end; ++i) {
            add_full(window * points + first + i * stride, sx, sy, szz, szzz, infinity);
        }
        store_results(t, sx, sy, szz, szzz, infinity);
    }
}
