// c = a @ b in row-major order: a is m x k, b is k x n. Work-group (x, y) computes the tile in
// column x and row y of the tiles of c.

@group(0) @binding(0) var<storage, read> a: array<$type>;
@group(0) @binding(1) var<storage, read> b: array<$type>;
@group(0) @binding(2) var<storage, read_write> c: array<$type>;

const TILE = ${tile}u;

var<workgroup> a_tile: array<array<$type, TILE>, TILE>;
var<workgroup> b_tile: array<array<$type, TILE>, TILE>;

@compute @workgroup_size(TILE, TILE)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_id) local: vec3<u32>,
) {
    let m = param(1u);
    let n = param(2u);
    let k = param(3u);
    let row = group.y * TILE + local.y;
    let column = group.x * TILE + local.x;
    var sum = $type(0);
    for (var first = 0u; first < k; first += TILE) {
        // Elements outside a matrix count as zero. They must not be read and multiplied by zero:
        // they could be NaN.
        var a_value = $type(0);
        var b_value = $type(0);
        if (row < m && first + local.x < k) { a_value = a[row * k + first + local.x]; }
        if (first + local.y < k && column < n) { b_value = b[(first + local.y) * n + column]; }
        a_tile[local.y][local.x] = a_value;
        b_tile[local.y][local.x] = b_value;
        workgroupBarrier();
        for (var i = 0u; i < TILE; i++) { sum += a_tile[local.y][i] * b_tile[i][local.x]; }
        workgroupBarrier();
    }
    if (row < m && column < n) { c[row * n + column] = sum; }
}
