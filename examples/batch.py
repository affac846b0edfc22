"""A batch: a thousand small calls of different sizes, one by one and then together.

python examples/batch.py
"""

import time

import numpy as np

import gpu_executor as gx

draw = np.random.default_rng(7)
add = gx.kernels.load("vector_add_f32")
sizes = draw.integers(1, 500, 1_000)
jobs = [(draw.random(n, np.float32), draw.random(n, np.float32)) for n in sizes]

with gx.GpuExecutor() as gpu:
    gpu.run(add, *jobs[0])  # the first call compiles the kernel

    begun = time.perf_counter()
    one_by_one = [gpu.run(add, x, y) for x, y in jobs]
    alone = time.perf_counter() - begun

    begun = time.perf_counter()
    together = gpu.run_batch(add, jobs)  # what waits for a device is run at once
    batched = time.perf_counter() - begun

same = all(np.array_equal(one, other) for one, other in zip(one_by_one, together, strict=True))
print(f"{len(jobs):,} calls one by one: {alone * 1e3:.0f} ms")
print(f"{len(jobs):,} calls in a batch: {batched * 1e3:.0f} ms")
print("the results are", "the same" if same else "different")
