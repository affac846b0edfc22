// The group law in residues (residues.glsl), of curves y^2 = x^3 + b with a small b, by work-groups of six rows
// of lanes.
//
// Points are projective, (X / Z, Y / Z), and infinity is (0, Y, 0). The formulas of Renes, Costello and Batina
// (2016, algorithms 7 and 9) are complete where no point has order 2: they have no exceptions for
// equal points, opposite points or infinity, which residues could not tell without a conversion. Products
// come in two steps of up to six, one for each row of lanes, and two products share a reduction:
//
//     sum        step 1    X1 X2    Y1 Y2    Z1 Z2    T3 = X1 Y2 + X2 Y1    T4 = Y1 Z2 + Y2 Z1    T5 = X1 Z2 + X2 Z1
//                          T0 = 3 X1 X2    U = 3b Z1 Z2    V = Y1 Y2 - U    W = Y1 Y2 + U    T5 = 3b T5
//                step 2    X = T3 V - T4 T5    Y = V W + T5 T0    Z = W T4 + T0 T3
//     double     step 1    X Y    Y^2    Z^2    Y Z
//                          U = 3b Z^2    V = Y^2 - 3 U    W = Y^2 + U
//                step 2    X = 2 X Y V    Y = 8 Y^2 U + V W    Z = 8 Y^2 Y Z
//
// Bounds: products are below 16p, X below 32p. What is subtracted is below 48 * 3b p, the multiple of p that
// is added. kernels/residues.py chooses A with room for the sum of two products.
//
// Include residues.glsl first.

const RESIDUE ZERO = RESIDUE(0), ONE_POINT = RESIDUE(1);

struct Point { RESIDUE x, y, z; };

// The chosen of some numbers by the row; rows without a product multiply 0.
RESIDUE by_row(RESIDUE r0, RESIDUE r1, RESIDUE r2, RESIDUE r3, RESIDUE r4, RESIDUE r5) {
    uint row = OWN_ROW;
    RESIDUE low = row == 0 ? r0 : row == 1 ? r1 : r2;
    RESIDUE high = row == 3 ? r3 : row == 4 ? r4 : r5;
    return row < 3 ? low : high;
}

RESIDUE multiply(RESIDUE x, RESIDUE y, RESIDUE v, RESIDUE w) {
    uint unused;
    return mul_add(x, y, v, w, unused);
}

void double_point(inout Point p) {
    share(mul(by_row(p.x, p.y, p.z, p.y, ZERO, ZERO), by_row(p.y, p.y, p.z, p.z, ZERO, ZERO)));
    RESIDUE xy = product(0), yy = product(1), u = scale(product(2), three_b), yz = product(3);
    RESIDUE v = yy + (multiple - scale(u, 3)), w = yy + u, y8 = scale(yy, 8);
    RESIDUE z = multiply(by_row(xy, y8, y8, ZERO, ZERO, ZERO), by_row(v, u, yz, ZERO, ZERO, ZERO),
        by_row(ZERO, v, ZERO, ZERO, ZERO, ZERO), by_row(ZERO, w, ZERO, ZERO, ZERO, ZERO)
    );
    share(z);
    p.x = 2 * product(0);
    p.y = product(1);
    p.z = product(2);
}

// An operand of a sum: the two coordinates that this row multiplies by those of the other one.
struct Operand { RESIDUE first, second; };

Operand select_coordinates(Point q) {
    return Operand(
        by_row(q.x, q.y, q.z, q.y, q.z, q.z), by_row(ZERO, ZERO, ZERO, q.x, q.y, q.x)
    );
}

void add_point(inout Point p, Operand q) {
    share(multiply(
        by_row(p.x, p.y, p.z, p.x, p.y, p.x), q.first,
        by_row(ZERO, ZERO, ZERO, p.y, p.z, p.z), q.second
    ));
    RESIDUE t0 = scale(product(0), 3), yy = product(1), u = scale(product(2), three_b);
    RESIDUE t3 = product(3), t4 = product(4), t5 = scale(product(5), three_b);
    RESIDUE v = yy + (multiple - u), w = yy + u, minus_t4 = multiple - t4;
    share(multiply(by_row(t3, v, w, ZERO, ZERO, ZERO), by_row(v, w, t4, ZERO, ZERO, ZERO),
        by_row(minus_t4, t5, t0, ZERO, ZERO, ZERO), by_row(t5, t0, t3, ZERO, ZERO, ZERO)
    ));
    p.x = product(0);
    p.y = product(1);
    p.z = product(2);
}

// Points in memory: three coordinates, each of ROW residues.
#define POINT_SIZE (3 * ROW)
#define RESIDUE_POINTS_IN(at, name)                                                           \
    layout(set = 0, binding = at, std430) readonly buffer name##_Points { RESIDUE name[]; };  \
    Operand load_##name(uint point, bool negative) {                                          \
        uint row = OWN_ROW, own = point * POINT_SIZE + LANE;                                  \
        uint first = row < 3 ? row : row == 3 ? 1 : 2, second = row == 4 ? 1 : 0;             \
        Operand q = Operand(name[own + first * ROW], name[own + second * ROW]);                 \
        if (negative && first == 1) q.first = multiple - q.first;                             \
        if (negative && second == 1) q.second = multiple - q.second;                          \
        if (row < 3) q.second = ZERO;                                                         \
        return q;                                                                             \
    }
#define RESIDUE_POINTS_OUT(at, name)                                                          \
    layout(set = 0, binding = at, std430) writeonly buffer name##_Points { RESIDUE name[]; }; \
    void store_##name(uint point, Point p) {                                                  \
        RESIDUE own = by_row(p.x, p.y, p.z, ZERO, ZERO, ZERO);                                \
        if (OWN_ROW < 3) name[point * POINT_SIZE + gl_LocalInvocationID.x] = own;             \
    }

#ifdef RESULT_BINDING
ELEMENTS_OUT(RESULT_BINDING, result)
#ifdef LIMBS_BINDING
layout(set = 0, binding = LIMBS_BINDING, std430) writeonly buffer Sums { uint sums[]; };
#endif

// The XYZZ form (X Z, Y Z^2, Z^2, Z^3), each number below p: as words, or unless `as_words` as limbs.
void store_xyzz(Point p, uint index, bool as_words) {
    RESIDUE factor = as_words ? RESIDUE(LANE_CONSTANT(WORD_FACTOR_A), LANE_CONSTANT(WORD_FACTOR_B))
                              : RESIDUE(LANE_CONSTANT(LIMB_FACTOR_A), LANE_CONSTANT(LIMB_FACTOR_B));
    share(mul(by_row(p.x, p.z, ZERO, ZERO, ZERO, ZERO), p.z));
    RESIDUE xz = product(0), zz = product(1);
    share(mul(by_row(p.y, p.z, ZERO, ZERO, ZERO, ZERO), zz));
    RESIDUE y = product(0), zzz = product(1);
    uint t, row = OWN_ROW;
    mul_add(by_row(xz, y, zz, zzz, ZERO, ZERO), factor, ZERO, ZERO, t);
    NUMBER z;
    to_limbs(t, z);
    if (LANE != 0 || row > 3) return;
#ifdef LIMBS_BINDING
    if (!as_words) {
        [[unroll]] for (uint i = 0; i < LIMBS; ++i) sums[(index * LIMBS + i) * 4 + row] = z[i];
        return;
    }
#endif
    uint words[WORDS];
    limbs_to_words(z, words);
    store_result(4 * index + row, words);
}
#endif
