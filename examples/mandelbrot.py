"""One's own SPIR-V: the Mandelbrot set, a point an element, from mandelbrot.comp beside this file.

glslc -O --target-env=vulkan1.2 examples/mandelbrot.comp -o examples/mandelbrot.spv
python examples/own_spirv.py
"""

from pathlib import Path

import numpy as np

import gpu_executor as gx

SHADES = " .,:;+*@"

# Arguments, their types and their access are read from the code. What the code does not say is that
# each element of the result depends on the same elements of the arguments alone.
mandelbrot = gx.Kernel.from_spirv(Path(__file__).with_name("mandelbrot.spv"), split="elements")
columns, rows = np.linspace(-2.1, 0.7, 72), np.linspace(-1.15, 1.15, 25)
x, y = np.meshgrid(columns.astype(np.float32), rows.astype(np.float32))

with gx.GpuExecutor("vulkan") as gpu:  # of the backends, Vulkan takes SPIR-V
    steps = gpu.run(mandelbrot, x, y)
    print(gpu.explain(mandelbrot, x, y))

for row in np.log2(steps).astype(int):  # 1 step: 0, 200 steps, which is as good as never gone: 7
    print("".join(SHADES[shade] for shade in row))
