"""Run kernels of the package through WebGPU and compare with exact results: for systems without
Vulkan. Ends with an error if a result differs."""

import numpy as np

import gpu_executor as gx

SIZES = (1, 1_000, 100_000)

with gx.WgpuExecutor() as gpu:
    print(gpu.device.name)
    add = gx.kernels.load("vector_add_u32")
    for size in SIZES:
        x = np.arange(size, dtype=np.uint32)
        if not np.array_equal(gpu.run(add, x, x), 2 * x):
            raise SystemExit(f"vector_add_u32 of {size:,} elements is wrong")
    field = gx.fields.BLS12_381_FQ
    kernel = gx.kernels.load("bls12_381_fq_add")
    a, b = field.random(1_000, seed=1), field.random(1_000, seed=2)
    sums = gpu.run(kernel, a, b).tolist()
    exact = [(x + y) % field.modulus for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    if sums != exact:
        raise SystemExit("bls12_381_fq_add is wrong")
    print("right: additions of integers and of field elements")
