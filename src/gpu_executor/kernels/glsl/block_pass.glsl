// One pass of a transform whose roots belong to blocks: LEVELS levels of butterflies.
//
// A polynomial modulo X^(2m) - r^2 is split into its remainders modulo X^m - r and X^m + r, from
// X^n - 1 down to n numbers. So all butterflies of a block have one root r. The root of block b is
// w^c, where c is b with its bits reversed, and it is the same on every level. No element is
// multiplied between passes, and one table has the roots of all levels and of all lengths. The
// results are in bit-reversed order (block_dif_pass.comp). The same steps backwards take them to
// natural order (block_dit_pass.comp).
//
// Each invocation has one butterfly of every level, a pair of elements. Between two levels pairs of
// invocations exchange an element each: by a shuffle if both are in a subgroup, otherwise through
// shared memory. A work-group has TILE / 2 invocations.
//
// 2^22 elements of BLS12-381 Fr on an NVIDIA H200, milliseconds: 0.95; 1.13 without shuffles and with
// a loop over levels, 1.08 with shuffles and a loop; 1.20 with four elements and two levels in an
// invocation, whose registers leave 16 subgroups to a multiprocessor; 1.60 with twiddles between
// passes and Montgomery's products (transform.glsl).

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#include "spec_ids.glsl"

layout(local_size_x_id = ID_WORK_GROUP_SIZE) in;
layout(push_constant) uniform Push {
    uint count;
    uint log_m;
    uint log_n;
    uint own_length;
    uint table_length;
};
// Whether there are fewer work-groups than tiles.
layout(constant_id = ID_GRID_STRIDE) const bool GRID_STRIDE = true;
#include "shoup.glsl"
#include "tiles.glsl"

// Whether a row is one element (R = 1): log_m = LEVELS.
layout(constant_id = ID_BY_BLOCK) const bool BY_BLOCK = false;
// Whether rows of x have only own_length elements, which zeros follow.
layout(constant_id = ID_PADS) const bool PADS = false;
// Whether x has the elements of one block of 2^log_m for each transform, which all blocks share.
layout(constant_id = ID_REPEATS) const bool REPEATS = false;
// Whether to multiply by `scale`.
layout(constant_id = ID_SCALES) const bool SCALES = false;
// log2 of the adjacent invocations that are in one subgroup.
layout(constant_id = ID_LOG_SUBGROUP) const uint LOG_SUBGROUP = 0;

layout(set = 0, binding = 0, std430) readonly buffer X { uvec4 x_by4[]; };
// Word k of factor i is in vector i of array k / 4: four arrays of vectors of four words, and one of
// vectors of two.
layout(set = 0, binding = 1, std430) readonly buffer RootsBy4 { ivec4 roots_by4[]; };
layout(set = 0, binding = 1, std430) readonly buffer RootsBy2 { ivec2 roots_by2[]; };
layout(set = 0, binding = 2, std430) readonly buffer Scale { int scale[]; };
layout(set = 0, binding = 3, std430) writeonly buffer Y { uvec4 y_by4[]; };

// --- the pair of an invocation ---

// Adjacent invocations have adjacent columns, or adjacent pairs of a block if BY_BLOCK.
uint get_column() {
    uint i = gl_LocalInvocationID.x;
    return BY_BLOCK ? i >> (LEVELS - 1) : i & (C - 1);
}
uint get_pair() {
    uint i = gl_LocalInvocationID.x;
    return BY_BLOCK ? i & ((A >> 1) - 1) : i >> COLUMNS;
}

// The first row of a pair at a distance of 2^d rows.
uint first_row(uint pair, uint d) {
    return ((pair >> d) << (d + 1)) + (pair & ((1u << d) - 1u));
}

// The index of row 0 of a column.
uint column_start(uint tile, uint c) {
    uint column = (tile << COLUMNS) + c, log_r = log_m - LEVELS;
    if (BY_BLOCK) return block_start(column);
    return ((column >> log_r) << log_m) + (column & ((1u << log_r) - 1u));
}

// The root of a pair at a distance of 2^d rows. `start` is the index of row 0 of its column.
uint load_root(uint start, uint pair, uint d, out FACTOR factor) {
    uint block = (start & ((1u << log_n) - 1u)) >> log_m;
    uint root = (block << (LEVELS - 1 - d)) + (pair >> d);
    [[unroll]] for (uint k = 0; k < 4; ++k) {
        ivec4 four = roots_by4[k * table_length + root];
        factor[4 * k] = four.x;
        factor[4 * k + 1] = four.y;
        factor[4 * k + 2] = four.z;
        factor[4 * k + 3] = four.w;
    }
    ivec2 two = roots_by2[8 * table_length + root];
    factor[16] = two.x;
    factor[17] = two.y;
    return root;
}

void multiply_by_scale(inout NUMBER u, inout NUMBER v) {
    FACTOR factor;
    [[unroll]] for (uint k = 0; k < 18; ++k) factor[k] = scale[k];
    mul_factor(factor, u);
    mul_factor(factor, v);
}

// --- exchange ---

shared int tile_limbs[9 * TILE];

// Adjacent invocations access different memory banks, whatever the distance of their pairs.
uint place(uint row, uint column) {
    uint at = BY_BLOCK ? (column << LEVELS) + row : (row << COLUMNS) + column;
    return at ^ ((at >> 1) & 31);
}

void put_number(uint at, NUMBER x) {
    EACH_LIMB(i) tile_limbs[i * TILE + at] = x[i];
}

void get_number(uint at, out NUMBER x) {
    EACH_LIMB(i) x[i] = tile_limbs[i * TILE + at];
}

void put_pair(uint pair, uint column, uint d, NUMBER u, NUMBER v) {
    uint row = first_row(pair, d);
    put_number(place(row, column), u);
    put_number(place(row + (1u << d), column), v);
}

// From pairs at a distance of 2^d rows to pairs at twice or at half the distance, 2^next rows. The
// invocations whose pairs differ in the bit of the lower distance exchange elements.
void exchange(uint pair, uint column, uint d, uint next, inout NUMBER u, inout NUMBER v) {
    uint bit = min(d, next), log_partner = BY_BLOCK ? bit : bit + COLUMNS;
    if (log_partner < LOG_SUBGROUP) {
        bool upper = (pair >> bit & 1) != 0;
        EACH_LIMB(i) {
            int got = subgroupShuffleXor(upper ? u[i] : v[i], 1u << log_partner);
            u[i] = upper ? got : u[i];
            v[i] = upper ? v[i] : got;
        }
    } else {
        put_pair(pair, column, d, u, v);
        barrier();
        uint row = first_row(pair, next);
        get_number(place(row, column), u);
        get_number(place(row + (1u << next), column), v);
    }
}

// --- elements in memory ---

void load_number(uint index, out NUMBER x) {
    uint within = index & ((1u << log_n) - 1u), source = index;
    if (PADS) source = (index >> log_n) * own_length + within;
    if (REPEATS) source = ((index >> log_n) << log_m) + (index & ((1u << log_m) - 1u));
    if (PADS && within >= own_length) {
        EACH_LIMB(i) x[i] = 0;
    } else {
        unpack_words(x_by4[2 * source], x_by4[2 * source + 1], x);
    }
}

void store_number(uint index, bool fully, NUMBER x) {
    uvec4 low, high;
    pack_words(x, fully, low, high);
    y_by4[2 * index] = low;
    y_by4[2 * index + 1] = high;
}

void load_pair(uint start, uint pair, uint d, out NUMBER u, out NUMBER v) {
    uint log_r = log_m - LEVELS, index = start + (first_row(pair, d) << log_r);
    load_number(index, u);
    load_number(index + (1u << (d + log_r)), v);
}

// If REVERSES, elements are exchanged once more, so that adjacent invocations store adjacent ones.
void store_pair(uint tile, uint start, uint pair, uint d, bool fully, NUMBER u, NUMBER v) {
    if (REVERSES) {
        barrier();
        put_pair(pair, get_column(), d, u, v);
        barrier();
        EACH_LOCAL(i, TILE) {
            Position position = store_position(tile, i);
            NUMBER x;
            get_number(place(position.in_tile >> COLUMNS, position.in_tile & (C - 1)), x);
            store_number(store_index(position), fully, x);
        }
    } else {
        uint log_r = log_m - LEVELS, index = start + (first_row(pair, d) << log_r);
        store_number(index, fully, u);
        store_number(index + (1u << (d + log_r)), fully, v);
    }
}
