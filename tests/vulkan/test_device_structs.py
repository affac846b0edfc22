"""Structs in calls that run on the device: host arrays beside device arrays, and `keep=True`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx

SUM = """
#version 450
layout(local_size_x = 64) in;
struct Pair { uint a; uint b; WIDE };
layout(binding = 0) readonly buffer X { Pair x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < x.length()) y[i] = x[i].a + 100 * x[i].b;
}
"""


def lay_out(gpu: gx.PersistentVulkanBackend, array: Any, layout: str) -> Any:
    if layout == "strided":
        return np.repeat(array, 2)[::2]
    if layout == "mapped":
        mapped = gpu.empty((len(array), array.itemsize), np.uint8).view(array.dtype)[:, 0]
        mapped[...] = array
        return mapped
    return array


@pytest.mark.parametrize("layout", ["plain", "strided", "mapped"])
@pytest.mark.parametrize("wide", [False, True], ids=["packed", "with padding"])
@pytest.mark.parametrize("count", [3, 300, 20_000])
def test_an_array_of_structs_has_its_size_on_the_device(
    gpu: gx.PersistentVulkanBackend, layout: str, wide: bool, count: int
) -> None:
    kernel = gx.Kernel.from_glsl(SUM.replace("WIDE", "uvec4 c;" if wide else ""))
    x = np.zeros(count, kernel.arguments[0].type.dtype)
    x["a"], x["b"] = np.arange(count), 7
    neighbours = [gpu.to_device(np.full(count, n, np.uint32)) for n in range(3)]
    found = gpu.run(kernel, lay_out(gpu, x, layout), keep=True)
    assert np.array_equal(found.numpy(), np.arange(count) + 700)
    for n, each in enumerate(neighbours):
        assert (each.numpy() == n).all()
