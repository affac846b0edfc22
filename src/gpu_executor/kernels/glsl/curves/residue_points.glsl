// The group law in residues (residues.glsl), of curves y^2 = x^3 + b with a small b, by work-groups of six rows
// of lanes.
//
// Points are projective, (X / Z, Y / Z), and infinity is (0, Y, 0). The formulas of Renes, Costello and Batina
// (2016, algorithms 7 and 9) are complete where no point has order 2: they have no exceptions for
// equal points, opposite points or infinity, which residues could not tell without a conversion. Products
// come in two steps of up to six, one for each row of lanes, and two products share a reduction:
//
//     row               0              1              2         3              4              5
//     sum       step 1  T0 = 3 X1 X2   Y1 Y2          3b Z1 Z2  X1 Y2 + X2 Y1  Y1 Z2 + Y2 Z1  3b (X1 Z2 + X2 Z1)
//               step 2  T3 V - T4 T5   V W + T5 T0    W T4 + T0 T3
//     doubling  step 1  X Y            Y^2            3b Z^2    Y Z            8 Y^2          9b Z^2
//               step 2  T0 V           T4 T2 + V W    T4 T3
//
// T0 to T5 are the results of step 1, V = T1 - T2 and W = T1 + T2 in a sum, V = T1 - T5 and W = T1 + T2 in
// a doubling, whose X is twice the result. The state of a sum, X, Y and Z, is what step 2 leaves in `products`.
//
// Bounds: products are below 16p. What is subtracted is below 48 * 3b p, the multiple of p that
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

// The constant factors of the results of the first step of a sum, and of a doubling, by row.
uint sum_factor, double_factor;

// Begins with a point. The rows have read `products` when they are here.
void begin_sum(Point p) {
    barrier();
    uint row = OWN_ROW;
    sum_factor = row == 0 ? 3 : row == 2 || row == 5 ? three_b : 1;
    double_factor = row == 2 ? three_b : row == 4 ? 8 : row == 5 ? 3 * three_b : 1;
    share(by_row(p.x, p.y, p.z, ZERO, ZERO, ZERO));
}

// The point that the last operation left.
Point get_sum() { return Point(product(0), product(1), product(2)); }

void double_point() {
    uint row = OWN_ROW;
    RESIDUE x = product(row == 0 ? 0 : row == 2 || row == 5 ? 2 : 1);
    RESIDUE y = product(row == 2 || row == 3 || row == 5 ? 2 : 1);
    share(scale(mul(x, y), double_factor));
    RESIDUE t1 = product(1), t2 = product(2);
    RESIDUE v = t1 + (multiple - product(5)), w = t1 + t2;
    RESIDUE first = product(row == 0 ? 0 : 4), second = row == 1 ? t2 : product(3);
    // X = 2 T0 V
    if (row == 0) first *= 2;
    share(multiply(first, row == 0 ? v : second, row == 1 ? v : ZERO, w));
}

// An operand of a sum: the two coordinates that this row multiplies by those of the other one.
struct Operand { RESIDUE first, second; };

Operand select_coordinates(Point q) {
    return Operand(
        by_row(q.x, q.y, q.z, q.y, q.z, q.z), by_row(ZERO, ZERO, ZERO, q.x, q.y, q.x)
    );
}

void add_point(Operand q) {
    uint row = OWN_ROW;
    RESIDUE x = product(row == 1 || row == 4 ? 1 : row == 2 ? 2 : 0);
    RESIDUE v = product(row == 3 ? 1 : 2); // for rows 3, 4 and 5; q.second is 0 in the others
    share(scale(multiply(x, q.first, v, q.second), sum_factor));
    RESIDUE t1 = product(1), t2 = product(2), own = product(row == 0 ? 3 : 4);
    RESIDUE difference = t1 + (multiple - t2), sum = t1 + t2;
    RESIDUE third = product(row == 0 ? 4 : row == 1 ? 5 : 0);
    RESIDUE fourth = product(row == 0 ? 5 : row == 1 ? 0 : 3);
    if (row == 0) third = multiple - third;
    RESIDUE first = row == 0 ? own : row == 1 ? difference : sum;
    RESIDUE second = row == 0 ? difference : row == 1 ? sum : own;
    share(multiply(first, second, third, fourth));
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
