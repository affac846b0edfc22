"""Work-groups whose size is a specialization constant: declared, chosen by the plan, or refused.

This file requires glslc.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import KernelError

SUM_GROUPS = """
#version 450
layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint SIZE = 1;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
shared uint sums[SIZE];
void main() {
    uint at = gl_LocalInvocationID.x, i = gl_GlobalInvocationID.x;
    sums[at] = i < x.length() ? x[i] : 0;
    barrier();
    for (uint half_ = SIZE / 2; half_ > 0; half_ /= 2) {
        if (at < half_) sums[at] += sums[at + half_];
        barrier();
    }
    if (at == 0) y[gl_WorkGroupID.x] = sums[0];
}
"""


def count_groups(shape: tuple[int, ...]) -> tuple[int]:
    return (-(-shape[0] // 32),)


@pytest.mark.parametrize("declared", [{}, {"grid": count_groups}], ids=["no grid", "a grid"])
def test_shared_memory_has_the_declared_size(
    gpu: gx.PersistentVulkanBackend, declared: dict[str, Any]
) -> None:
    sums = gx.Kernel.from_glsl(SUM_GROUPS, out_shape=count_groups, work_group=32, **declared)
    for count in (1024, 32_768):  # plans of small and of large calls
        x = np.arange(count, dtype=np.uint32)
        expected = x.reshape(-1, 32).sum(axis=1, dtype=np.uint32)
        np.testing.assert_array_equal(gpu.run(sums, x), expected)
        np.testing.assert_array_equal(gpu.run(sums, gpu.to_device(x)).numpy(), expected)
        assert "work-group: 32, declared by the kernel" in str(gpu.explain(sums, x))


@pytest.mark.parametrize("declared", [{}, {"grid": count_groups}], ids=["no grid", "a grid"])
def test_shared_memory_of_no_declared_size_is_refused(
    gpu: gx.PersistentVulkanBackend, declared: dict[str, Any]
) -> None:
    sums = gx.Kernel.from_glsl(SUM_GROUPS, out_shape=count_groups, **declared)
    with pytest.raises(KernelError, match="nothing gives the size: give work_group=64"):
        gpu.run(sums, np.ones(64, np.uint32))


GROUP_OF_EACH = """
#version 450
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < x.length()) y[i] = GROUP;
}
"""


def test_results_by_work_group_have_the_declared_size(gpu: gx.PersistentVulkanBackend) -> None:
    kernel = gx.Kernel.from_glsl(GROUP_OF_EACH.replace("GROUP", "gl_WorkGroupID.x"), work_group=128)
    for count in (1000, 32_768):
        found = gpu.run(kernel, np.zeros(count, np.uint32))
        np.testing.assert_array_equal(found, np.arange(count) // 128)


@pytest.mark.parametrize(
    "group", ["gl_WorkGroupID.x", "gl_LocalInvocationID.x", "gl_LocalInvocationIndex"]
)
def test_results_by_work_groups_of_no_declared_size_are_refused(
    gpu: gx.PersistentVulkanBackend, group: str
) -> None:
    kernel = gx.Kernel.from_glsl(GROUP_OF_EACH.replace("GROUP", group))
    with pytest.raises(KernelError, match="or reads gl_WorkGroupID or gl_LocalInvocationID"):
        gpu.run(kernel, np.ones(64, np.uint32))
