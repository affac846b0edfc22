"""Arrays in blocks whose length is a specialization constant: sized by the kernel's constants.

This file requires glslc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, KernelError

HEAD_AND_BODY = """
#version 450
layout(constant_id = 0) const uint N = 4;
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer X { uint head; TYPE body[LENGTH]; } x;
layout(binding = 1) writeonly buffer Y { uint head; TYPE body[LENGTH]; } y;
void main() {
    y.head = x.head + N;
    for (uint i = 0; i < x.body.length(); i++) y.body[i] = TYPE(2) * x.body[i];
}
"""


@pytest.mark.parametrize(("glsl", "numpy"), [("float", "f4"), ("uint", "u4"), ("ivec2", "2i4")])
@pytest.mark.parametrize(("length", "count"), [("N", 8), ("N", 2), ("2 * N + 1", 3)])
def test_a_struct_with_a_specialized_array(
    gpu: gx.PersistentVulkanBackend, glsl: str, numpy: str, length: str, count: int
) -> None:
    text = HEAD_AND_BODY.replace("TYPE", glsl).replace("LENGTH", length)
    kernel = gx.Kernel.from_glsl(text, constants={0: count}, grid=(1,))
    dtype = kernel.arguments[0].type.dtype
    entries = count if length == "N" else 2 * count + 1
    x = np.zeros(1, dtype)
    x["head"] = 7
    x["body"] = np.arange(x["body"].size).reshape(x["body"].shape)
    assert x["body"].shape[:2] == (1, entries)
    for found in (gpu.run(kernel, x), gpu.run(kernel, x, keep=True).numpy()):
        assert found["head"].tolist() == [7 + count]
        np.testing.assert_array_equal(found["body"], 2 * x["body"])
    assert np.dtype(numpy).base == x["body"].dtype


ALONE = """
#version 450
layout(constant_id = 3) const int N = 4;
layout(local_size_x = 1) in;
layout(binding = 0) readonly buffer X { float x[N]; };
layout(binding = 1) writeonly buffer Y { float y[N / 2]; };
void main() { for (uint i = 0; i < N / 2; i++) y[i] = x[2 * i] + x[2 * i + 1]; }
"""


@pytest.mark.parametrize("constants", [{}, {3: 8}])
def test_an_array_alone_has_the_specialized_length(
    gpu: gx.PersistentVulkanBackend, constants: dict[int, int]
) -> None:
    kernel = gx.Kernel.from_glsl(ALONE, constants=constants, grid=(1,))
    count = constants.get(3, 4)
    x = np.arange(count, dtype=np.float32)
    np.testing.assert_array_equal(gpu.run(kernel, x), x[::2] + x[1::2])
    with pytest.raises(ArgumentShapeError, match=f"fixed length of {count}"):
        gpu.run(kernel, x[:-1])


PARAMETERS = """
#version 450
layout(constant_id = 0) const uint N = 2;
layout(local_size_x = 1) in;
BLOCK P { float factor; vec2 weights[N]; };
layout(binding = 0) writeonly buffer Y { vec2 y[N]; };
void main() { for (uint i = 0; i < N; i++) y[i] = factor * weights[i]; }
"""


@pytest.mark.parametrize(
    "block", ["layout(push_constant, std430) uniform", "layout(binding = 5) uniform"]
)
def test_parameters_with_a_specialized_length(gpu: gx.PersistentVulkanBackend, block: str) -> None:
    kernel = gx.Kernel.from_glsl(
        PARAMETERS.replace("BLOCK", block), constants={0: 3}, grid=(1,), count=False
    )
    weights = np.arange(6, dtype=np.float32).reshape(3, 2)
    found = gpu.run(kernel, params={"factor": 3.0, "weights": weights})
    np.testing.assert_array_equal(found, 3 * weights)
    with pytest.raises(ArgumentTypeError, match=r"shape \(3, 2\)"):
        gpu.run(kernel, params={"factor": 3.0, "weights": weights[:2]})


def test_a_value_that_the_constant_cannot_hold_is_refused() -> None:
    wrong: list[Any] = [-1, 2.5, True, "8", 1 << 32]
    for value in wrong:
        with pytest.raises(KernelError, match="specialization constant 0 is a 32-bit uint"):
            gx.Kernel.from_glsl(
                PARAMETERS.replace("BLOCK", "layout(push_constant) uniform"), constants={0: value}
            )


@pytest.mark.parametrize("declared", [{"work_group": 8}, {"tuning": gx.Tuning(per_invocation=1)}])
def test_a_length_that_is_not_known_when_the_kernel_is_made_is_refused(
    declared: dict[str, Any],
) -> None:
    text = """
#version 450
layout(constant_id = 0) const uint SIZE = 4;
layout(constant_id = 1) const uint PER = 4;
layout(local_size_x_id = 0) in;
layout(binding = 0) buffer X { uint head; uint x[LENGTH]; };
void main() { x[gl_LocalInvocationID.x] += PER; }
"""
    text = text.replace("LENGTH", "SIZE" if "work_group" in declared else "PER")
    with pytest.raises(KernelError, match=r"depends on specialization constant \d, which is not"):
        gx.Kernel.from_glsl(text, **declared)
