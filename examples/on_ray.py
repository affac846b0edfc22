"""Ray: the devices of a cluster behind the same calls; without a cluster, those of this machine.

An actor beside each device keeps it open; arrays travel through Ray's object store.

pip install '.[ray]'
python examples/on_ray.py
"""

import numpy as np

import gpu_executor as gx

add = gx.kernels.load("vector_add_u32")
rows = [np.arange(n, n + 10_000, dtype=np.uint32) for n in range(50)]

# Two actors for each machine's best device; "all" is one for each of its best devices.
with gx.cluster.RayExecutor(devices=2) as cluster:
    print(cluster)

    future = cluster.submit(add, rows[0], rows[1])
    print("the first sum begins with", *future.result()[:5])

    sums = list(cluster.map(add, rows, reversed(rows)))
    print(f"{len(sums)} sums of a row and its opposite, all begin with", *{int(s[0]) for s in sums})

    jobs = [(row, row) for row in rows]
    doubled = cluster.run_batch(add, jobs)
    print("twice", rows[-1][-1], "is", doubled[-1][-1])
