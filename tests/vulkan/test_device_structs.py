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


IN_OUT = """
#version 450
layout(local_size_x = 64) in;
struct S { float a; uint b; };
layout(binding = 0) buffer X { TYPE x[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < x.length()) CHANGE;
}
"""


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 2, 3)])
def test_in_out_arguments_of_several_axes(
    gpu: gx.PersistentVulkanBackend, shape: tuple[int, ...]
) -> None:
    kernel = gx.Kernel.from_glsl(IN_OUT.replace("TYPE", "uint").replace("CHANGE", "x[i] += i"))
    x = np.full(shape, 5, np.uint32)
    expected = 5 + np.arange(6).reshape(shape)
    np.testing.assert_array_equal(gpu.run(kernel, x, keep=True).numpy(), expected)
    np.testing.assert_array_equal(x, 5)


def test_structs_whose_fields_have_other_names(gpu: gx.PersistentVulkanBackend) -> None:
    kernel = gx.Kernel.from_glsl(
        IN_OUT.replace("TYPE", "S").replace("CHANGE", "x[i].b += uint(x[i].a)")
    )
    x = np.zeros((2, 2), [("p", "f4"), ("q", "u4")])
    x["p"], x["q"] = 3, np.arange(4).reshape(2, 2)
    kept = gpu.run(kernel, x, keep=True)
    np.testing.assert_array_equal(kept.numpy()["b"], 3 + x["q"])
    out = np.zeros_like(x)
    assert gpu.run(kernel, kept, out=out) is out
    np.testing.assert_array_equal(out["q"], 6 + x["q"])
    np.testing.assert_array_equal(out["p"], 3)
