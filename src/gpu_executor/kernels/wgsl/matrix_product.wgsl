// c = a @ b in row-major order: a is m x k, b is k x n. As in glsl/matmul.glsl, which explains it.
// Only atomic operations pass values between work-groups.

@group(0) @binding(0) var<storage, read> a: array<$type>;
@group(0) @binding(1) var<storage, read> b: array<$type>;
@group(0) @binding(2) var<storage, read_write> c: array<$type>;
// The number of finished slices of each tile, which begins as 0; then the slices.
@group(0) @binding(3) var<storage, read_write> scratch: array<atomic<u32>>;

const INVOCATIONS = ${invocations}u;
const DEPTH = ${depth}u;
const LARGE_TILE = ${large_tile}u;

// What the invocations of a work-group have in common.
struct Task {
    m: u32, n: u32, k: u32,
    tile_rows: u32, tile_columns: u32,
    tiles: u32,
    tile: u32, tile_row: u32, tile_column: u32,
    slices: u32,
    slice: u32, first: u32, end: u32,
}

var<workgroup> panels: array<vec4<$type>, DEPTH * (LARGE_TILE / 2u + 1u)>;
var<workgroup> finished_slices: u32;

fn load_a(task: Task, row: u32, at: u32) -> $type {
    if (at >= task.end) { return $type(0); }
    return a[min(row, task.m - 1u) * task.k + at];
}

fn load_b(task: Task, at: u32, column: u32) -> $type {
    if (at >= task.end) { return $type(0); }
    return b[at * task.n + min(column, task.n - 1u)];
}

fn locate_in_slice(task: Task, slice: u32, row: u32, column: u32) -> u32 {
    return task.tiles + (slice * task.m + row) * task.n + column;
}

fn store(task: Task, row: u32, column: u32, value: $type) {
    if (row >= task.m || column >= task.n) { return; }
    if (task.slices == 1u) {
        c[row * task.n + column] = value;
    } else {
        atomicStore(&scratch[locate_in_slice(task, task.slice, row, column)], bitcast<u32>(value));
    }
}

fn load_from_slice(task: Task, slice: u32, row: u32, column: u32) -> $type {
    return bitcast<$type>(atomicLoad(&scratch[locate_in_slice(task, slice, row, column)]));
}

fn is_last_slice(task: Task, local: u32) -> bool {
    storageBarrier();
    if (local == 0u) { finished_slices = atomicAdd(&scratch[task.tile], 1u) + 1u; }
    let finished = workgroupUniformLoad(&finished_slices);
    storageBarrier();
    return finished == task.slices;
}

fn add_slices(task: Task, local: u32) {
    for (var i = local; i < task.tile_rows * task.tile_columns; i += INVOCATIONS) {
        let row = task.tile_row + i / task.tile_columns;
        let column = task.tile_column + i % task.tile_columns;
        if (row < task.m && column < task.n) {
            var sum = $type(0);
            for (var slice = 0u; slice < task.slices; slice++) {
                sum += load_from_slice(task, slice, row, column);
            }
            c[row * task.n + column] = sum;
        }
    }
}

$large_tile_function
$small_tile_function
fn add_lanes(element: u32, lane: u32, lanes: u32, value: $type) -> $type {
    let own = element * lanes + lane;
    panels[own].x = value;
    workgroupBarrier();
    for (var half = lanes / 2u; half > 0u; half /= 2u) {
        if (lane < half) { panels[own].x += panels[own + half].x; }
        workgroupBarrier();
    }
    return panels[element * lanes].x;
}

fn compute_by_lanes(task: Task, local: u32) {
    let elements = task.tile_rows * task.tile_columns;
    let lanes = INVOCATIONS / elements;
    let tall = task.tile_rows >= task.tile_columns;
    let lane = select(local / elements, local % lanes, tall);
    let element = select(local % elements, local / lanes, tall);
    let row = task.tile_row + element / task.tile_columns;
    let column = task.tile_column + element % task.tile_columns;
    let inside = row < task.m && column < task.n;

    var sums = vec4<$type>();
    for (var at = task.first + lane; inside && at < task.end; at += 4u * lanes) {
        sums += vec4<$type>(
            load_a(task, row, at), load_a(task, row, at + lanes),
            load_a(task, row, at + 2u * lanes), load_a(task, row, at + 3u * lanes),
        ) * vec4<$type>(
            load_b(task, at, column), load_b(task, at + lanes, column),
            load_b(task, at + 2u * lanes, column), load_b(task, at + 3u * lanes, column),
        );
    }
    var sum = add_lanes(element, lane, lanes, (sums.x + sums.y) + (sums.z + sums.w));
    if (lane == 0u) { store(task, row, column, sum); }
    if (task.slices == 1u) { return; }
    if (!is_last_slice(task, local)) { return; }

    sum = $type(0);
    for (var slice = lane; inside && slice < task.slices; slice += lanes) {
        sum += load_from_slice(task, slice, row, column);
    }
    sum = add_lanes(element, lane, lanes, sum);
    if (lane == 0u && inside) { c[row * task.n + column] = sum; }
}

@compute @workgroup_size(INVOCATIONS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    var task: Task;
    task.m = param(1u);
    task.n = param(2u);
    task.k = param(3u);
    task.tile_rows = param(4u);
    task.tile_columns = param(5u);
    let rows_of_tiles = (task.m - 1u) / task.tile_rows + 1u;
    let columns_of_tiles = (task.n - 1u) / task.tile_columns + 1u;
    task.tiles = rows_of_tiles * columns_of_tiles;
    task.tile = group.y * groups.x + group.x;
    if (task.tile >= task.tiles) { return; }
    let wide = columns_of_tiles > rows_of_tiles;
    let tile_y = select(task.tile / columns_of_tiles, task.tile % rows_of_tiles, wide);
    let tile_x = select(task.tile % columns_of_tiles, task.tile / rows_of_tiles, wide);
    task.tile_row = tile_y * task.tile_rows;
    task.tile_column = tile_x * task.tile_columns;
    task.slices = groups.z;
    task.slice = group.z;
    task.first = group.z * param(6u);
    task.end = min(task.first + param(6u), task.k);
    if (task.tile_rows * task.tile_columns <= INVOCATIONS) {
        compute_by_lanes(task, local);
        return;
    }
    if (task.tile_rows == LARGE_TILE && task.tile_columns == LARGE_TILE) {
        compute_large_tile(task, local);
    } else {
        compute_small_tile(task, local);
    }
    if (task.slices == 1u) { return; }
    if (is_last_slice(task, local)) { add_slices(task, local); }
}
