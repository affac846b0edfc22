// c = a @ b in row-major order: a is m x k, b is k x n.
//
// A work-group computes one tile of c. If k is cut into slices, the work-group adds up the products
// of one slice only. Work-group (x, y, z) computes tile x + y * (work-groups in x) and slice z. The
// host chooses the tile and the slices by the shapes alone (kernels/matmul.py), so the order of the
// additions depends on nothing else. There are three kinds of tiles:
//
// - 128 x 128 elements: an invocation computes 8 x 8 of them (matmul_tile.glsl).
// - 128 x 32, 64 x 64 or 32 x 128 elements: an invocation computes 4 x 4 of them.
// - Up to 256 elements, for c of few rows, few columns or few elements: several invocations, the
//   lanes, share the sum of each element.
//
// Define TYPE, TYPE4 (a vector of four), to_bits and from_bits before including this file.

#extension GL_EXT_control_flow_attributes : require

const uint INVOCATIONS = 256;
const uint DEPTH = 8;           // columns of a, and rows of b, that a tile processes at a time
const uint LARGE_TILE = 128;
const uint LOADS = 16;          // of each matrix that a lane has in flight

layout(local_size_x = 256) in;
layout(push_constant) uniform Push {
    uint count;
    uint m, n, k;
    uint tile_rows, tile_columns;
    uint slice_depth;
};
layout(set = 0, binding = 0, std430) readonly restrict buffer A { TYPE4 a[]; };
layout(set = 0, binding = 1, std430) readonly restrict buffer B { TYPE4 b[]; };
layout(set = 0, binding = 2, std430) writeonly restrict buffer C { TYPE c[]; };
// If there are several slices: the number of finished slices of each tile, which begins as 0; then
// for each slice a matrix of the same shape as c.
layout(set = 0, binding = 3, std430) coherent restrict buffer Scratch { uint scratch[]; };

shared TYPE4 panels[DEPTH * (LARGE_TILE / 4 + 1 + LARGE_TILE / 4)];  // matmul_tile.glsl
shared uint finished_slices;

uint rows_of_tiles, columns_of_tiles;
uint first, end;  // the slice of k

// --- loads: an element behind the slice is 0; one beyond the last row or column may be anything,
// since nothing that is stored depends on it ---

TYPE load_a(uint row, uint at) {
    uint i = min(row, m - 1) * k + at;
    return at < end ? a[i / 4][i % 4] : TYPE(0);
}

TYPE load_b(uint at, uint column) {
    uint i = at * n + min(column, n - 1);
    return at < end ? b[i / 4][i % 4] : TYPE(0);
}

// Four adjacent elements of a row. If rows consist of whole vectors, so do slices.
TYPE4 load_a_vector(uint row, uint at) {
    if (k % 4 == 0) return at < end ? a[(min(row, m - 1) * k + at) / 4] : TYPE4(0);
    return TYPE4(load_a(row, at), load_a(row, at + 1), load_a(row, at + 2), load_a(row, at + 3));
}

TYPE4 load_b_vector(uint at, uint column) {
    if (n % 4 == 0) return at < end ? b[(at * n + min(column, n - 4)) / 4] : TYPE4(0);
    return TYPE4(load_b(at, column), load_b(at, column + 1), load_b(at, column + 2),
                 load_b(at, column + 3));
}

// --- stores and slices ---

uint locate_in_slice(uint slice, uint row, uint column) {
    return rows_of_tiles * columns_of_tiles + (slice * m + row) * n + column;
}

void store(uint row, uint column, TYPE value) {
    if (row >= m || column >= n) return;
    if (gl_NumWorkGroups.z == 1) c[row * n + column] = value;
    else scratch[locate_in_slice(gl_WorkGroupID.z, row, column)] = to_bits(value);
}

TYPE load_from_slice(uint slice, uint row, uint column) {
    return from_bits(scratch[locate_in_slice(slice, row, column)]);
}

// Whether this work-group was the last of its tile to store its slice. Then it can load all slices.
bool is_last_slice(uint tile) {
    memoryBarrierBuffer();
    barrier();
    if (gl_LocalInvocationIndex == 0) finished_slices = atomicAdd(scratch[tile], 1) + 1;
    barrier();
    memoryBarrierBuffer();
    return finished_slices == gl_NumWorkGroups.z;
}

void add_slices(uint tile_row, uint tile_column) {
    for (uint i = gl_LocalInvocationIndex; i < tile_rows * tile_columns; i += INVOCATIONS) {
        uint row = tile_row + i / tile_columns, column = tile_column + i % tile_columns;
        if (row >= m || column >= n) continue;
        TYPE sum = TYPE(0);
        for (uint slice = 0; slice < gl_NumWorkGroups.z; ++slice) {
            sum += load_from_slice(slice, row, column);
        }
        c[row * n + column] = sum;
    }
}

// --- tiles ---

// Each 32 invocations, a subgroup on many devices, compute 8 x 4 neighbouring blocks: they load
// fewer distinct vectors than 16 x 2 neighbours would.
#define NAME compute_large_tile
#define BLOCKS 2
#define ROWS LARGE_TILE
#define COLUMNS LARGE_TILE
#define X_OF(local) (local % 8 + local / 32 % 2 * 8)
#define Y_OF(local) (local / 8 % 4 + local / 64 * 4)
#include "matmul_tile.glsl"

#define NAME compute_small_tile
#define BLOCKS 1
#define ROWS tile_rows
#define COLUMNS tile_columns
#define X_OF(local) (local % (tile_columns / 4))
#define Y_OF(local) (local / (tile_columns / 4))
#include "matmul_tile.glsl"

// --- tiles of few elements ---

// Adds up the values of the lanes of each element, by halves; the result is right in all lanes.
TYPE add_lanes(uint element, uint lane, uint lanes, TYPE value) {
    uint own = element * lanes + lane;
    panels[own].x = value;
    barrier();
    for (uint part = lanes / 2; part > 0; part /= 2) {
        if (lane < part) panels[own].x += panels[own + part].x;
        barrier();
    }
    return panels[element * lanes].x;
}

void compute_by_lanes(uint tile, uint tile_row, uint tile_column) {
    const uint elements = tile_rows * tile_columns, lanes = INVOCATIONS / elements;
    const uint local = gl_LocalInvocationIndex;
    // Adjacent invocations load adjacent elements of the larger matrix: of rows of a, or of b.
    const bool tall = tile_rows >= tile_columns;
    const uint lane = tall ? local % lanes : local / elements;
    const uint element = tall ? local / lanes : local % elements;
    const uint row = tile_row + element / tile_columns;
    const uint column = tile_column + element % tile_columns;
    const bool inside = row < m && column < n;

    TYPE4 sums = TYPE4(0);
    for (uint at = first + lane; inside && at < end; at += LOADS * lanes) {
        TYPE a_part[LOADS], b_part[LOADS];
        [[unroll]] for (uint i = 0; i < LOADS; ++i) {
            a_part[i] = load_a(row, at + i * lanes);
            b_part[i] = load_b(at + i * lanes, column);
        }
        [[unroll]] for (uint i = 0; i < LOADS; ++i) sums[i % 4] += a_part[i] * b_part[i];
    }
    TYPE sum = add_lanes(element, lane, lanes, (sums.x + sums.y) + (sums.z + sums.w));
    if (lane == 0) store(row, column, sum);
    if (gl_NumWorkGroups.z == 1 || !is_last_slice(tile)) return;

    sum = TYPE(0);
    for (uint slice = lane; inside && slice < gl_NumWorkGroups.z; slice += lanes) {
        sum += load_from_slice(slice, row, column);
    }
    sum = add_lanes(element, lane, lanes, sum);
    if (lane == 0 && inside) c[row * n + column] = sum;
}

void main() {
    rows_of_tiles = (m - 1) / tile_rows + 1;
    columns_of_tiles = (n - 1) / tile_columns + 1;
    uint tile = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    if (tile >= rows_of_tiles * columns_of_tiles) return;
    first = gl_WorkGroupID.z * slice_depth;
    end = min(first + slice_depth, k);
    // Consecutive tiles run at the same time. They are adjacent along the shorter side of c, so
    // that they find the same rows of a or columns of b in the cache.
    bool wide = columns_of_tiles > rows_of_tiles;
    uint tile_row = (wide ? tile % rows_of_tiles : tile / columns_of_tiles) * tile_rows;
    uint tile_column = (wide ? tile / rows_of_tiles : tile % columns_of_tiles) * tile_columns;
    if (tile_rows * tile_columns <= INVOCATIONS) {
        compute_by_lanes(tile, tile_row, tile_column);
        return;
    }
    if (tile_rows == tile_columns && tile_rows == LARGE_TILE) {
        compute_large_tile(tile_row, tile_column);
    } else {
        compute_small_tile(tile_row, tile_column);
    }
    if (gl_NumWorkGroups.z > 1 && is_last_slice(tile)) add_slices(tile_row, tile_column);
}
