"""User-defined kernels: SPIR-V compiled from GLSL. This file requires glslc."""

from __future__ import annotations

import dataclasses
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError, DeviceLacksError
from gpu_executor.vulkan.device_checks import check_device_runs
from tests.conftest import OpenGpu, on_both_paths
from tests.support.custom_kernels import (
    BODY,
    COUNT,
    HEAD,
    buffer,
    kernel,
    sum_and_difference,
    whole_sum,
)
from tests.support.glsl import compile_glsl

Array = npt.NDArray[Any]


@on_both_paths
@pytest.mark.parametrize("size", [1, 100, 101, 250])
def test_several_outputs_are_returned_as_a_tuple(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, size: int
) -> None:
    a, b = np.arange(size, dtype=np.uint32), np.arange(size, dtype=np.uint32)[::-1]
    results = chunking_gpu.run(sum_and_difference(), a, b, device_local=device_local)
    assert isinstance(results, tuple)
    np.testing.assert_array_equal(results[0], a + b)
    np.testing.assert_array_equal(results[1], a - b)


def test_a_kernel_accepts_any_shape_of_the_type_in_its_code(
    chunking_gpu: gx.PersistentVulkanBackend,
) -> None:
    double = kernel(BODY + "y[i] = 2 * x[i];", buffer(0, "x"), buffer(1, "y"))
    x = np.arange(2 * 3 * 40, dtype=np.uint32).reshape(2, 3, 40)
    np.testing.assert_array_equal(chunking_gpu.run(double, x), 2 * x)
    for other in (np.float32, np.int32, np.uint64):
        with pytest.raises(ArgumentTypeError, match=r"argument 0 .* it takes uint32"):
            chunking_gpu.run(double, x.astype(other))


def test_declared_dtypes_replace_those_of_the_code(
    chunking_gpu: gx.PersistentVulkanBackend,
) -> None:
    double = kernel(BODY + "y[i] = 2 * x[i];", buffer(0, "x"), buffer(1, "y"), buffers="f4, f4")
    floats = np.arange(240, dtype=np.float32)  # the kernel doubles the bit pattern as an integer
    expected = (floats.view(np.uint32) * np.uint32(2)).view(np.float32)
    np.testing.assert_array_equal(chunking_gpu.run(double, floats), expected)


def test_inputs_and_outputs_may_have_different_types(
    chunking_gpu: gx.PersistentVulkanBackend,
) -> None:
    split = kernel(
        BODY + "half_[i] = float(x[i].x) / 2; swapped[i] = x[i].yx;",
        buffer(0, "x", "uvec2"),
        buffer(1, "half_", "float"),
        buffer(2, "swapped", "uvec2"),
        buffers=[("in", ("u4", (2,))), "out f4", ("out", ("u4", (2,)))],
    )
    x = np.arange(500, dtype=np.uint32).reshape(250, 2)
    half, swapped = chunking_gpu.run(split, x)
    assert (half.shape, half.dtype) == ((250,), np.float32)
    np.testing.assert_array_equal(half, x[:, 0].astype(np.float32) / 2)
    np.testing.assert_array_equal(swapped, x[:, ::-1])


@on_both_paths
@pytest.mark.parametrize("size", [1, 100, 101, 1000])
def test_a_whole_kernel_is_never_chunked(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool, size: int
) -> None:
    x = np.arange(size, dtype=np.uint32)
    assert chunking_gpu.explain(whole_sum(), x).chunk == size
    result = chunking_gpu.run(whole_sum(), x, device_local=device_local)
    assert result.tolist() == [sum(range(size))]


@on_both_paths
def test_a_whole_kernel_may_have_inputs_and_outputs_of_different_lengths(
    gpu: gx.PersistentVulkanBackend, device_local: bool
) -> None:
    outer = kernel(
        BODY + "for (uint k = 0; k < 3; ++k) table[3 * i + k] = a[i] * b[k];"
        "if (i == 0) counted[0] = count;",
        buffer(0, "a"),
        buffer(1, "b"),
        buffer(2, "table"),
        buffer(3, "counted"),
        buffers="in, in, out, out",
        split="whole",
        out_shape=lambda a, b: [(*a, *b), (1,)],
    )
    a, b = np.arange(70, dtype=np.uint32), np.array([5, 7, 11], np.uint32)
    table, counted = gpu.run(outer, a, b, device_local=device_local)
    np.testing.assert_array_equal(table, np.outer(a, b))
    assert counted.tolist() == [70]


def test_a_whole_kernel_too_large_for_the_device_is_refused(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = fresh_gpu()
    limits = dataclasses.replace(gpu.device.limits, max_storage_buffer_range=4096)
    info = dataclasses.replace(gpu.device, limits=limits)
    monkeypatch.setattr(gpu._session.call_preparer, "_info", info)
    with pytest.raises(DeviceLacksError, match=r"binding 0 .* has 4,100 bytes.*at most 4,096"):
        gpu.run(whole_sum(), np.zeros(1025, np.uint32))
    assert gpu.run(whole_sum(), np.ones(1024, np.uint32)).tolist() == [1024]


def test_push_bytes_and_constants_reach_the_code(gpu: gx.PersistentVulkanBackend) -> None:
    def linear(factor: int, offset: int) -> gx.Kernel:
        return kernel(
            BODY + "y[i] = FACTOR * x[i] + offset;",
            "layout(constant_id = 7) const uint FACTOR = 1;",
            buffer(0, "x"),
            buffer(1, "y"),
            pushed="layout(push_constant) uniform Push { uint count; uint offset; };",
            buffers="in, out",
            constants={7: factor},
            push=struct.pack("<I", offset),
        )

    x = np.arange(70, dtype=np.uint32)
    for factor, offset in ((3, 4), (3, 5), (6, 5)):
        np.testing.assert_array_equal(gpu.run(linear(factor, offset), x), factor * x + offset)


def test_a_work_group_size_fixed_in_the_code_is_used(gpu: gx.PersistentVulkanBackend) -> None:
    code = compile_glsl(
        f"layout(local_size_x = 20) in; {COUNT} {buffer(0, 'x')} {buffer(1, 'y')}"
        f"void main() {{ {BODY} y[i] = x[i] + gl_WorkGroupSize.x; }}"
    )
    own = gx.Kernel.from_spirv(code, buffers="in, out")
    x = np.arange(99, dtype=np.uint32)
    assert gpu.explain(own, x).work_group == 20
    np.testing.assert_array_equal(gpu.run(own, x), x + 20)


def test_code_without_push_constants_runs(gpu: gx.PersistentVulkanBackend) -> None:
    negate = kernel(
        "uint i = gl_GlobalInvocationID.x; if (i < x.length()) y[i] = ~x[i];",
        buffer(0, "x"),
        buffer(1, "y"),
        pushed="",
        buffers="in, out",
    )
    x = np.arange(70, dtype=np.uint32)
    np.testing.assert_array_equal(gpu.run(negate, x), ~x)


@on_both_paths
def test_a_status_word_reports_the_first_bad_element(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool
) -> None:
    below_1000 = kernel(
        BODY + "y[i] = x[i]; if (x[i] >= 1000) atomicMin(status[0], i);",
        buffer(0, "x"),
        buffer(1, "y"),
        buffer(2, "status"),
        buffers="in, out, status",
    )
    x = np.arange(250, dtype=np.uint32)
    np.testing.assert_array_equal(chunking_gpu.run(below_1000, x, device_local=device_local), x)
    x[[180, 170, 240]] = 1000
    with pytest.raises(gx.ElementRangeError) as caught:
        chunking_gpu.run(below_1000, x, device_local=device_local)
    assert (caught.value.argument, caught.value.index) == (0, 170)


WIDE = {
    "double": ("double", np.float64, "Float64", ""),
    "int64_t": ("int64_t", np.int64, "Int64", "GL_EXT_shader_explicit_arithmetic_types_int64"),
}


@pytest.mark.parametrize(("kind", "dtype", "capability", "extension"), WIDE.values(), ids=WIDE)
def test_64_bit_types_run_if_the_device_has_them_and_floats_are_refused_otherwise(
    gpu: gx.PersistentVulkanBackend, kind: str, dtype: type, capability: str, extension: str
) -> None:
    head = f"#extension {extension} : require\n{HEAD}" if extension else HEAD
    code = compile_glsl(
        f"{head}\n{COUNT} {buffer(0, 'x', kind)} {buffer(1, 'y', kind)}"
        f"void main() {{ {BODY} y[i] = x[i] * x[i]; }}"
    )
    square = gx.Kernel.from_spirv(code, buffers="in, out")
    x: Array = np.arange(-70, 70).astype(dtype) * 1_000_003
    if f"shader{capability}" in gpu.device.features:
        np.testing.assert_array_equal(gpu.run(square, x), x * x)
    lacking = dataclasses.replace(gpu.device, features=frozenset())
    if capability == "Int64":
        check_device_runs(square, lacking)  # pairs of words: test_lowered_kernels.py runs them
        return
    refusal = rf"needs {capability}; .* lacks shader{capability} \(.*has it; the kernel has no ref"
    with pytest.raises(DeviceLacksError, match=refusal):
        check_device_runs(square, lacking)


def test_a_work_group_too_large_is_refused(gpu: gx.PersistentVulkanBackend) -> None:
    most = gpu.device.limits.max_work_group_invocations
    own = sum_and_difference(constants={0: 2 * most})
    x = np.zeros(10, np.uint32)
    with pytest.raises(DeviceLacksError, match=rf"work-groups of \({2 * most}, 1, 1\)"):
        gpu.run(own, x, x)


def test_more_shared_memory_than_the_device_has_is_refused(gpu: gx.PersistentVulkanBackend) -> None:
    source = f"""
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint TILE = 1;
{COUNT} {buffer(0, "x")} {buffer(1, "y")}
shared uint tile[TILE * gl_WorkGroupSize.x];
void main() {{
    uint i = gl_GlobalInvocationID.x, at = TILE * gl_LocalInvocationID.x;
    tile[at] = i < count ? x[i] : 0;
    barrier();
    if (i < count) y[i] = tile[at] + 1;
}}
"""
    code, x = compile_glsl(source), np.arange(100, dtype=np.uint32)
    most = gpu.device.limits.max_shared_memory
    fits = gx.Kernel.from_spirv(code, buffers="in, out", constants={0: 32, 1: most // 128})
    np.testing.assert_array_equal(gpu.run(fits, x), x + 1)
    too_large = {1: most // 4 + 1}  # for one invocation
    large = gx.Kernel.from_spirv(code, buffers="in, out", constants=too_large, work_group=8)
    with pytest.raises(DeviceLacksError, match=rf"bytes of shared memory .* has {most}"):
        gpu.run(large, x)


def test_spirv_newer_than_the_device_supports_is_refused(gpu: gx.PersistentVulkanBackend) -> None:
    source = f"{HEAD} {COUNT} {buffer(0, 'x')} {buffer(1, 'y')} void main() {{ y[0] = x[0]; }}"
    newest = gx.Kernel.from_spirv(compile_glsl(source, vulkan="1.3"), buffers="in, out")
    older = dataclasses.replace(gpu.device, api_version=(1, 2, 0))
    with pytest.raises(DeviceLacksError, match=r"is SPIR-V 1\.6; .* takes up to 1\.5"):
        check_device_runs(newest, older)


def test_a_work_group_size_by_local_size_id_needs_maintenance4(
    gpu: gx.PersistentVulkanBackend,
) -> None:
    source = (
        f"{HEAD} {COUNT} {buffer(0, 'x')} {buffer(1, 'y')} void main() {{ {BODY} y[i] = x[i]; }}"
    )
    newest = gx.Kernel.from_spirv(compile_glsl(source, vulkan="1.3"))
    if "maintenance4" in gpu.device.features:
        x = np.arange(1000, dtype=np.uint32)
        np.testing.assert_array_equal(gpu.run(newest, x), x)  # the validation layer says nothing
    lacking = dataclasses.replace(gpu.device, features=frozenset())
    with pytest.raises(DeviceLacksError, match=r"LocalSizeId; .* lacks maintenance4"):
        check_device_runs(newest, lacking)


def test_more_buffers_than_the_device_binds_are_refused(gpu: gx.PersistentVulkanBackend) -> None:
    limits = dataclasses.replace(gpu.device.limits, max_bound_buffers=3)
    fewer = dataclasses.replace(gpu.device, limits=limits)
    with pytest.raises(DeviceLacksError, match=r"binds 4 buffers; .* takes 3"):
        check_device_runs(sum_and_difference(), fewer)
