"""A first program: open the best device there is, run a kernel on NumPy arrays, look at the result.

python examples/first_program.py
"""

import numpy as np

import gpu_executor as gx

x = np.arange(1_000_000, dtype=np.uint32)
add = gx.kernels.load("vector_add_u32")

with gx.GpuExecutor() as gpu:  # a GPU by Vulkan or WebGPU; a software driver or NumPy without one
    print(gpu)

    doubled = gpu.run(add, x, x)  # runs now, in this thread
    print("twice", x[-1], "is", doubled[-1])

    future = gpu.submit(add, x, doubled)  # runs when the device is free
    print("thrice", x[-1], "is", future.result()[-1])

    # Elements of finite fields, in device memory: exact on every device, as Python's integers are.
    field = gx.fields.BLS12_381_FQ
    a = gpu.to_device(field.encode([-1, 5], reduce=True))
    b = gpu.to_device(field.encode([3, 7]))
    print("-1 + 3 and 5 + 7 modulo a prime of 381 bits:", *(a + b).tolist())
