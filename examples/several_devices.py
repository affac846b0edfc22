"""Several devices: calls go to whichever is free. Where there is one, it is opened twice.

python examples/several_devices.py
"""

import numpy as np

import gpu_executor as gx

several = len([device for device in gx.devices() if device.kind != "cpu"]) > 1
mul = gx.kernels.load("goldilocks_mont_mul")
numbers = np.arange(20_000, dtype=np.uint64)
jobs = [(numbers + n, numbers) for n in range(200)]

with gx.GpuExecutor("vulkan", devices="all" if several else [0, 0]) as gpu:
    results = gpu.run_batch(mul, jobs)
    for index, device in enumerate(gpu.stats().devices):
        print(f"device {index}, {device.device}: {device.calls} calls")

again = gx.GpuExecutor("cpu").run_batch(mul, jobs)
right = all(np.array_equal(one, other) for one, other in zip(results, again, strict=True))
print(f"{len(results)} results came in the order of the jobs, all", "right" if right else "wrong")
