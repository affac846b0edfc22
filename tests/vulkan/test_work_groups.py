"""Work-groups whose size is a specialization constant: declared, chosen by the plan, or refused.

This file requires glslc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import KernelError
from tests.support.glsl import compile_glsl

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


def strip_version(text: str) -> str:
    return text.replace("#version 450", "")


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
    ("group", "options"),
    [
        ("gl_WorkGroupID.x", ()),
        ("gl_LocalInvocationID.x", ("-O",)),
        ("gl_LocalInvocationIndex", ()),
        ("gl_WorkGroupSize.x", ("-O",)),
        ("gl_NumWorkGroups.x", ()),
        ("gl_NumSubgroups", ("-O",)),
        ("max(gl_WorkGroupSize.x, 3u)", ()),
        ("max(gl_WorkGroupSize.x, 3u)", ("-O",)),
    ],
    ids=str,
)
def test_results_by_work_groups_of_no_declared_size_are_refused(
    gpu: gx.PersistentVulkanBackend, group: str, options: tuple[str, ...]
) -> None:
    body = "#extension GL_KHR_shader_subgroup_basic : require" + GROUP_OF_EACH
    code = compile_glsl(strip_version(body).replace("GROUP", group), "1.2", options=options)
    kernel = gx.Kernel.from_spirv(code)
    for count in (64, 32_768):
        with pytest.raises(KernelError, match="nothing gives the size: give work_group=64"):
            gpu.run(kernel, np.ones(count, np.uint32))
    given = gx.Kernel.from_spirv(code, work_group=32)
    found = [gpu.run(given, np.ones(count, np.uint32)) for count in (64, 32_768)]
    if "gl_NumWorkGroups" not in group:
        np.testing.assert_array_equal(found[0], found[1][:64])
    else:
        assert [int(each[0]) for each in found] == [2, 1024]


SIZED = """
#version 450
layout(constant_id = 0) const uint BLOCK = 32;
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
uint scale(uint block) { return block * 10; }
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < x.length()) y[i] = VALUE;
}
"""
SIZED_VALUES: dict[str, Callable[[Any, int], Any]] = {
    "i / BLOCK": lambda i, block: i // block,
    "i / (2 * BLOCK + 1)": lambda i, block: i // (2 * block + 1),
    "scale(BLOCK) + i % gl_WorkGroupSize.x": lambda i, block: block * 10 + i % block,
    "clamp(i, 3u, BLOCK)": lambda i, block: np.clip(i, 3, block),
    "(i > BLOCK ? 1 : 0)": lambda i, block: (i > block).astype(np.uint32),
}


SIZED_CODES = [
    *((value, "1.2", ()) for value in SIZED_VALUES),
    *((value, "1.2", ("-O",)) for value in ("i / (2 * BLOCK + 1)", "clamp(i, 3u, BLOCK)")),
    ("scale(BLOCK) + i % gl_WorkGroupSize.x", "1.2", ("-O",)),
    ("scale(BLOCK) + i % gl_WorkGroupSize.x", "1.3", ()),
]
"""Optimised where a value is an operation on constants, an instruction of GLSL's set or a call;
with the size of Vulkan 1.3 where a value reads it."""


@pytest.mark.parametrize(("value", "vulkan", "options"), SIZED_CODES, ids=str)
def test_the_size_constant_in_the_code_has_its_default(
    gpu: gx.PersistentVulkanBackend, value: str, vulkan: str, options: tuple[str, ...]
) -> None:
    code = compile_glsl(strip_version(SIZED).replace("VALUE", value), vulkan, options=options)
    compute = SIZED_VALUES[value]
    for declared, block in (({}, 32), ({"work_group": 16}, 16), ({"constants": {0: 8}}, 8)):
        kernel = gx.Kernel.from_spirv(code, **declared)
        for count in (100, 20_000):
            i = np.arange(count, dtype=np.uint32)
            np.testing.assert_array_equal(gpu.run(kernel, i), compute(i, block))
            np.testing.assert_array_equal(
                gpu.run(kernel, gpu.to_device(i)).numpy(), compute(i, block)
            )


def test_a_size_constant_that_only_sets_the_size_is_chosen_by_the_plan(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    kernel = gx.Kernel.from_glsl(SIZED.replace("VALUE", "x[i] + 1"))
    x = np.arange(20_000, dtype=np.uint32)
    assert "work-group: 128 of (64, 128, 256, 512)" in str(gpu.explain(kernel, x))
    np.testing.assert_array_equal(gpu.run(kernel, x), x + 1)


def test_split_kernels_promise_that_no_result_depends_on_the_size(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    value = "x[i] + gl_WorkGroupSize.x - BLOCK"
    kernel = gx.Kernel.from_glsl(SIZED.replace("VALUE", value), split="elements")
    x = np.arange(20_000, dtype=np.uint32)
    assert "work-group: 128 of (64, 128, 256, 512)" in str(gpu.explain(kernel, x))
    np.testing.assert_array_equal(gpu.run(kernel, x), x)


TILES = """
#version 450
layout(constant_id = 0) const uint WIDTH = 4;
layout(constant_id = 1) const uint HEIGHT = 2;
layout(local_size_x_id = 0, local_size_y_id = ROWS_ID) in;
layout(binding = 0) writeonly buffer Y { uint y[]; };
void main() {
    uvec2 at = gl_GlobalInvocationID.xy;
    uint place = 100 * HEIGHT * gl_WorkGroupSize.y + gl_LocalInvocationIndex;
    y[at.y * WIDTH * gl_NumWorkGroups.x + at.x] = place;
}
"""


@pytest.mark.parametrize(
    ("rows", "declared", "size"),
    [
        ("1", {}, (4, 2)),
        ("1", {"constants": {1: 3}}, (4, 3)),
        ("0", {}, (4, 4)),
        ("0", {"work_group": 2}, (2, 2)),
    ],
)
def test_sizes_of_two_dimensions_have_the_defaults_that_the_code_names(
    gpu: gx.PersistentVulkanBackend, rows: str, declared: dict[str, Any], size: tuple[int, int]
) -> None:
    kernel = gx.Kernel.from_glsl(
        TILES.replace("ROWS_ID", rows), grid=(3, 2), count=False, **declared
    )
    assert kernel.local_size()[:2] == size
    width, height = size
    named = size[1] if rows == "1" else 2
    i = np.arange(width * height).reshape(height, width) + 100 * named * height
    expected = np.tile(i, (2, 3)).ravel()
    np.testing.assert_array_equal(gpu.run(kernel, out_shape=expected.shape), expected)


def test_atomic_operations_count_the_same_invocations_in_every_call(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    text = """
#version 450
layout(local_size_x_id = 0) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) buffer Counts { uint counts[]; };
void main() { atomicAdd(counts[x[gl_GlobalInvocationID.x]], 1); }
"""
    x = np.array([1, 2, 3, 3], np.uint32)
    jobs = [(x,), (np.ones(20_000, np.uint32),)]
    for work_group, size in ((None, 128), (32, 32)):
        kernel = gx.Kernel.from_glsl(text, out_shape=(4,), work_group=work_group)
        for found in (gpu.run(kernel, x), gpu.run_batch(kernel, jobs)[0]):
            assert found.tolist() == [size - 4, 1, 1, 2]  # those beyond the elements read 0


def test_a_plan_cannot_choose_a_size_of_two_dimensions() -> None:
    text = """
#version 450
layout(local_size_x_id = 0, local_size_y_id = 0) in;
layout(binding = 0) buffer X { uint x[]; };
void main() { x[gl_GlobalInvocationID.x] += 1; }
"""
    with pytest.raises(KernelError, match="size in more than one dimension"):
        gx.Kernel.from_glsl(text, split="elements")
