// Computes one tile of $rows x $columns elements; as in glsl/matmul_tile.glsl, which explains it.
fn $name(task: Task, local: u32) {
    let a_stride = $rows / 4u + 1u;
    let b_stride = $columns / 4u;
    let b_panel = DEPTH * a_stride;
    let x_step = b_stride / ${blocks}u;
    let y_step = $rows / 4u / ${blocks}u;
    let x = $x;
    let y = $y;
    let a_at = local % DEPTH;
    let b_column = local % $columns;
    //repeat load
    let a_row$i = local / DEPTH + ${i}u * (INVOCATIONS / DEPTH);
    let b_at$i = local / $columns + ${i}u * (INVOCATIONS / $columns);
    //end
    //repeat sum
    var sum${i}_$j = vec4<$type>();
    //end
    for (var panel = task.first; panel < task.end; panel += DEPTH) {
        //repeat load
        if (a_row$i < $rows) {
            panels[a_at * a_stride + a_row$i / 4u][a_row$i % 4u] =
                load_a(task, task.tile_row + a_row$i, panel + a_at);
        }
        if (b_at$i < DEPTH) {
            panels[b_panel + b_at$i * b_stride + b_column / 4u][b_column % 4u] =
                load_b(task, panel + b_at$i, task.tile_column + b_column);
        }
        //end
        workgroupBarrier();
        for (var at = 0u; at < DEPTH; at++) {
            //repeat block
            let a$i = panels[at * a_stride + ${i}u * y_step + y];
            let b$i = panels[b_panel + at * b_stride + ${i}u * x_step + x];
            //end
            //repeat sum
            sum${i}_$j += a$block.$component * b$j;
            //end
        }
        workgroupBarrier();
    }
    //repeat row
    panels[y * b_stride + x] = sum${i}_0;
    $second
    workgroupBarrier();
    for (var at = local; at < y_step * $columns; at += INVOCATIONS) {
        let row = (${block}u * y_step + at / $columns) * 4u + ${within}u;
        store(task, task.tile_row + row, task.tile_column + at % $columns, panels[at / 4u][at % 4u]);
    }
    workgroupBarrier();
    //end
}
