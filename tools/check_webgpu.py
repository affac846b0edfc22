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
    there = gpu.to_device(a)
    if (there * there).tolist() != [x * x % field.modulus for x in a.tolist()]:
        raise SystemExit("products of BLS12-381 Fq on device arrays are wrong")
    for ring in (gx.fields.BABYBEAR, gx.fields.GOLDILOCKS, gx.fields.BLS12_381_FR):
        values = ring.random(1_024, seed=3)
        if ring.ntt(gpu.to_device(values)).tolist() != ring.ntt(values).tolist():
            raise SystemExit(f"a transform of {ring.name} is wrong")
    keys = np.random.default_rng(4).integers(0, 1 << 32, 10_000, np.uint32)
    if not np.array_equal(gx.ops.sort(gpu.to_device(keys)).numpy(), np.sort(keys)):
        raise SystemExit("a sort is wrong")
    curve, scalars = gx.curves.BN254_G1, list(range(1, 65))
    points = gpu.to_device(curve.generator * scalars)
    if curve.msm(points, scalars).to_host() != curve.generator * sum(k * k for k in scalars):
        raise SystemExit("a multi-scalar multiplication is wrong")
    print(f"right ({gpu.stats().integers}): sums, products, transforms, a sort, an MSM")
