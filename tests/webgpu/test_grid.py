"""The work-groups of WebGPU kernels: given by `grid=`, or one invocation per element."""

from __future__ import annotations

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.kernel.wgsl import WgslCode
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.pipelines import LARGE_BUCKET
from tests.conftest import OpenWebGpu
from tests.support.jobs import ADD_U32
from tests.support.webgpu import declare_buffers, make_text, make_whole_kernel

BUFFERS = declare_buffers("read u32", "read_write u32")


def make_main(sizes: str, body: str) -> str:
    """Make a text whose invocations know only the global index `at`."""
    return f"""{BUFFERS}
@compute @workgroup_size({sizes})
fn main(@builtin(global_invocation_id) at: vec3<u32>) {{ {body} }}
"""


def make_kernel(text: str, **options: object) -> Kernel:
    return Kernel.from_wgsl(text, buffers="in u4, out u4", **options)  # type: ignore[arg-type]


def test_a_grid_of_two_dimensions_transposes(each_webgpu: gx.WgpuExecutor) -> None:
    transpose = make_kernel(
        make_main(
            "8, 8",
            "let rows = param(1u); let columns = param(2u);"
            "if (at.y < rows && at.x < columns)"
            " { b1[at.x * rows + at.y] = b0[at.y * columns + at.x]; }",
        ),
        grid=lambda m: (-(-m[1] // 8), -(-m[0] // 8)),
        out_shape=lambda m: m[::-1],
        push=lambda m: m,
    )
    for shape in [(1, 1), (8, 8), (30, 50), (129, 7)]:
        m = np.arange(shape[0] * shape[1], dtype=np.uint32).reshape(shape)
        np.testing.assert_array_equal(each_webgpu.run(transpose, m), m.T)


def test_a_grid_of_three_dimensions(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_kernel(
        make_main("2, 1, 3", "b1[(at.z * 5u + at.y) * 8u + at.x] = b0[0] + at.x * at.y * at.z;"),
        grid=(4, 5, 2),
        out_shape=(6, 5, 8),
    )
    z, y, x = np.indices((6, 5, 8))
    result = each_webgpu.run(kernel, np.array([3], np.uint32))
    np.testing.assert_array_equal(result, 3 + x * y * z)


def test_a_grid_may_depend_on_the_parameters(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_kernel(
        make_main("4", "b1[at.x] = b0[at.x];"),
        grid=lambda shape, params: params["groups"],
        params=["groups"],
    )
    x = np.arange(1, 41, dtype=np.uint32)
    for groups in (1, 3, 10, 1):
        expected = np.where(np.arange(40) < 4 * groups, x, 0)
        np.testing.assert_array_equal(each_webgpu.run(kernel, x, params=(groups,)), expected)
    results = each_webgpu.run_batch(kernel, [(x,), (x,)], params=[(2,), (5,)])
    assert [np.count_nonzero(result) for result in results] == [8, 20]


def test_a_grid_over_the_limit_of_the_device_is_refused(each_webgpu: gx.WgpuExecutor) -> None:
    x = np.ones(5, np.uint32)
    most = each_webgpu._device.max_groups
    text = make_main("1", "if (at.x < param(0u)) { b1[at.x] = b0[at.x] + at.y + at.z; }")
    for grid, axis in [((most + 1,), "x"), ((1, most + 1), "y"), ((1, 1, most + 1), "z")]:
        with pytest.raises(DeviceLacksError, match=rf"grid has {most + 1:,} work-groups in {axis}"):
            each_webgpu.run(make_kernel(text, grid=grid), x)
        by_params = make_kernel(text, grid=lambda shape, params, grid=grid: grid)
        with pytest.raises(DeviceLacksError, match=rf"work-groups in {axis}"):
            each_webgpu.run_batch(by_params, [(x,)])
    np.testing.assert_array_equal(each_webgpu.run(make_kernel(text, grid=(5,)), x), x)


def test_with_a_grid_the_work_group_has_a_known_size(each_webgpu: gx.WgpuExecutor) -> None:
    text = make_text(BUFFERS, "if (i < param(0u)) { b1[i] = work_group * per_invocation; }")
    x = np.zeros(LARGE_BUCKET, np.uint32)
    for work_group, expected in ((None, 64), (32, 32)):
        grid = (-(-len(x) // expected // 1024), 1024)
        kernel = make_kernel(text, grid=grid, work_group=work_group)
        for count in (100, len(x)):
            assert set(each_webgpu.run(kernel, x[:count]).tolist()) == {expected}


# --- without a grid ---


def test_a_whole_kernel_covers_its_largest_argument(each_webgpu: gx.WgpuExecutor) -> None:
    outer = make_whole_kernel(
        declare_buffers("read u32", "read u32", "read_write u32"),
        "let n = arrayLength(&b1);"
        "if (i < arrayLength(&b2)) { b2[i] = b0[i / n] * b1[i % n] + param(0u); }",
        buffers="in u4, in u4, out u4",
        out_shape=lambda a, b: (a[0], b[0]),
    )
    for m, n in [(1, 1), (100, 100), (3, 9000), (700, 2)]:
        a, b = np.arange(1, m + 1, dtype=np.uint32), np.arange(2, n + 2, dtype=np.uint32)
        np.testing.assert_array_equal(each_webgpu.run(outer, a, b), np.outer(a, b) + m)


def test_a_text_may_compute_with_the_work_group_size(each_webgpu: gx.WgpuExecutor) -> None:
    text = make_main("work_group", "if (at.x < param(0u)) { b1[at.x] = at.x / work_group; }")
    x = np.zeros(LARGE_BUCKET, np.uint32)
    for work_group, expected in ((None, 64), (32, 32)):
        kernel = make_kernel(text, work_group=work_group)
        for count in (100, 40_000, len(x)):
            found = each_webgpu.run(kernel, x[:count])
            np.testing.assert_array_equal(found, np.arange(count) // expected)


DOUBLE = make_main("work_group", "if (at.x < param(0u)) { b1[at.x] = 2u * b0[at.x]; }")


@pytest.mark.parametrize("count", [LARGE_BUCKET - 1, LARGE_BUCKET + 5])
def test_a_text_of_one_element_per_invocation_is_right_at_every_size(
    open_webgpu: OpenWebGpu, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    # A GPU computes two elements per invocation in large calls; the software device does not.
    monkeypatch.setattr(WebGpuDevice, "is_software", False)
    gpu, x = open_webgpu(), np.arange(count, dtype=np.uint32)
    for split in ("whole", "elements"):
        np.testing.assert_array_equal(gpu.run(make_kernel(DOUBLE, split=split), x), 2 * x)
    first = make_text(BUFFERS, "if (i < param(0u)) { b1[i] = 2u * b0[i]; }")
    np.testing.assert_array_equal(gpu.run(make_kernel(first), x), 2 * x)
    np.testing.assert_array_equal(gpu.run(ADD_U32, x, x), 2 * x)


def test_more_work_groups_than_one_row_need_a_text_that_counts_rows(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-compute-workgroups-per-dimension"] = 4
    x = np.arange(1000, dtype=np.uint32)
    rows = make_kernel(make_text(BUFFERS, "if (i < param(0u)) { b1[i] = 2u * b0[i]; }"))
    np.testing.assert_array_equal(gpu.run(rows, x), 2 * x)
    for split in ("whole", "elements"):
        kernel = make_kernel(DOUBLE, split=split, name="one row")
        np.testing.assert_array_equal(gpu.run(kernel, x[:256]), 2 * x[:256])
        with pytest.raises(
            DeviceLacksError, match=r"one row: 1,000 elements need .* first_element"
        ):
            gpu.run(kernel, x)


def test_work_groups_of_several_dimensions_need_a_grid(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_kernel(DOUBLE.replace("(work_group)", "(work_group, 2)"), name="flat")
    with pytest.raises(KernelError, match=r"'flat': .* @workgroup_size\(work_group, 2\); .* grid="):
        each_webgpu.run(kernel, np.ones(5, np.uint32))


def make_both(sizes: str) -> Kernel:
    """A kernel of a sum in SPIR-V and in WGSL; the WGSL has the given `@workgroup_size`."""
    text = "const SIZE = 16u;\n" + declare_buffers("read u32", "read u32", "read_write u32")
    text += f"""
@compute @workgroup_size({sizes}) // as in the SPIR-V
fn main(@builtin(global_invocation_id) at: vec3<u32>) {{
    if (at.x < param(0u)) {{ b2[at.x] = b0[at.x] + b1[at.x]; }}
}}
"""
    tuning = gx.Tuning(per_invocation=ADD_U32.per_invocation)
    return Kernel.from_spirv(
        ADD_U32.spirv, count=True, buffers="in, in, out", tuning=tuning, wgsl=WgslCode(text)
    )


@pytest.mark.parametrize("sizes", ["32", "1u", "SIZE"])
def test_a_fixed_work_group_of_a_spirv_kernel_covers_all_elements(
    open_webgpu: OpenWebGpu, sizes: str
) -> None:
    x = np.arange(20_000, dtype=np.uint32)
    np.testing.assert_array_equal(open_webgpu().run(make_both(sizes), x, x), 2 * x)


def test_a_work_group_of_unknown_size_needs_a_grid(open_webgpu: OpenWebGpu) -> None:
    x = np.ones(5, np.uint32)
    with pytest.raises(KernelError, match=r"@workgroup_size\(4 \* 8\); .* or give grid="):
        open_webgpu().run(make_both("4 * 8"), x, x)


def test_warming_up_a_whole_kernel_compiles_it(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu.prepare(make_kernel(DOUBLE), [100])
    assert (gpu.stats().pipelines, gpu.stats().buffer_sets) == (1, 0)
