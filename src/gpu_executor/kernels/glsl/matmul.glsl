// c = a @ b in row-major order: a is m x k, b is k x n. Define TYPE before including this file.
//
// Each work-group of 256 invocations computes one tile of 16 x 16 elements of c after the other (a
// grid-stride loop over tiles), so any number of work-groups computes the whole product.

const uint TILE = 16;

layout(local_size_x = 256) in;
layout(push_constant) uniform Push { uint count; uint m; uint n; uint k; };
layout(set = 0, binding = 0, std430) readonly restrict buffer A { TYPE a[]; };
layout(set = 0, binding = 1, std430) readonly restrict buffer B { TYPE b[]; };
layout(set = 0, binding = 2, std430) writeonly restrict buffer C { TYPE c[]; };

shared TYPE a_tile[TILE][TILE];
shared TYPE b_tile[TILE][TILE];

void main() {
    uint x = gl_LocalInvocationID.x % TILE;
    uint y = gl_LocalInvocationID.x / TILE;
    uint columns_of_tiles = (n + TILE - 1) / TILE;
    uint tiles = columns_of_tiles * ((m + TILE - 1) / TILE);
    for (uint tile = gl_WorkGroupID.x; tile < tiles; tile += gl_NumWorkGroups.x) {
        uint row = tile / columns_of_tiles * TILE + y;
        uint column = tile % columns_of_tiles * TILE + x;
        TYPE sum = TYPE(0);
        for (uint first = 0; first < k; first += TILE) {
            // Elements outside a matrix count as zero. They must not be read and multiplied by 0:
            // they could be NaN.
            TYPE a_value = TYPE(0), b_value = TYPE(0);
            if (row < m && first + x < k) a_value = a[row * k + first + x];
            if (first + y < k && column < n) b_value = b[(first + y) * n + column];
            a_tile[y][x] = a_value;
            b_tile[y][x] = b_value;
            barrier();
            for (uint i = 0; i < TILE; ++i) sum += a_tile[y][i] * b_tile[i][x];
            barrier();
        }
        if (row < m && column < n) c[row * n + column] = sum;
    }
}
