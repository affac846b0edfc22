"""The kernel contract on Vulkan: kernels as strangers write them, compared with NumPy.

This file requires glslc.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, DeviceLacksError, KernelError
from tests.conftest import OpenGpu, on_both_paths

Array = npt.NDArray[Any]
Gpu = gx.PersistentVulkanBackend
ID = "uint i = gl_GlobalInvocationID.x;"


def glsl(*declarations: str, main: str, size: str = "local_size_x = 64", **declared: Any) -> Any:
    """Compile a shader with those declarations; `main` is the body of its main function."""
    lines = ["#version 450", f"layout({size}) in;", *declarations, f"void main() {{ {main} }}"]
    return gx.Kernel.from_glsl("\n".join(lines), **declared)


def buffer(binding: int, name: str, kind: str = "uint", qualifier: str = "") -> str:
    return f"layout(binding = {binding}) {qualifier} buffer B{binding} {{ {kind} {name}[]; }};"


def scale() -> gx.Kernel:
    """z = factor * x + offset, with two parameters."""
    kernel: gx.Kernel = glsl(
        "layout(push_constant) uniform P { uint count; float factor; float offset; };",
        buffer(0, "x", "float"),
        buffer(1, "z", "float"),
        main=ID + "if (i < count) z[i] = factor * x[i] + offset;",
        params={"offset": 0.0},
    )
    return kernel


# --- arguments ---


@on_both_paths
def test_access_follows_from_what_the_code_does(gpu: Gpu, device_local: bool) -> None:
    kernel = glsl(
        buffer(0, "unused"),
        buffer(2, "x"),
        buffer(5, "y"),
        buffer(7, "z"),
        main=ID + "if (i < x.length()) { z[i] = x[i] + 1; atomicAdd(y[i], x[i]); y[i] += 2; }",
    )
    assert [each.access for each in kernel.arguments] == ["in", "in", "inout", "out"]
    assert [each.binding for each in kernel.arguments] == [0, 2, 5, 7]
    unused, x = np.zeros(1, np.uint32), np.arange(100, dtype=np.uint32)
    y = x[::-1].copy()
    new_y, z = gpu.run(kernel, unused, x, y, out_shape=(100,), device_local=device_local)
    np.testing.assert_array_equal(new_y, x[::-1] + x + 2)
    np.testing.assert_array_equal(z, x + 1)
    np.testing.assert_array_equal(y, x[::-1])


def test_a_declared_input_that_the_code_writes_is_refused() -> None:
    with pytest.raises(KernelError, match=r"binding 1 .* as an input, but the code writes it"):
        glsl(buffer(0, "x"), buffer(1, "y"), main="x[0] = 1; y[0] = 2;", buffers="out, in")


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        ("layout(set = 1, binding = 0) buffer B { uint x[]; };", "descriptor set 1"),
        ("layout(binding = 0) buffer B { uint x[]; } b[2];", "binding 0 is an array"),
    ],
)
def test_other_sets_and_arrays_of_buffers_are_refused(declaration: str, words: str) -> None:
    name = "b[0].x" if "b[2]" in declaration else "x"
    with pytest.raises(KernelError, match=words):
        glsl(declaration, main=f"{name}[0] = 1;")


# --- types ---


@on_both_paths
def test_vectors_matrices_and_structs_are_elements(gpu: Gpu, device_local: bool) -> None:
    kernel = glsl(
        "struct S { float a; uint b; vec2 c; };",
        buffer(0, "v", "vec3"),
        buffer(1, "m", "mat2"),
        buffer(2, "s", "S"),
        buffer(3, "out_v", "vec3"),
        buffer(4, "out_s", "S"),
        main=ID + "if (i < s.length()) {"
        "out_v[i] = v[i] * 2; out_s[i] = S(s[i].a + m[i][1][0], s[i].b + 1, s[i].c.yx); }",
        out_shape=lambda v, m, s: [v, s],
    )
    struct = np.dtype([("a", "f4"), ("b", "u4"), ("c", "f4", (2,))])
    rng = np.random.default_rng(1)
    v = rng.integers(0, 99, (70, 4)).astype(np.float32)
    m = rng.integers(0, 99, (70, 2, 2)).astype(np.float32)
    s = np.zeros(70, struct)
    s["a"], s["b"], s["c"] = np.arange(70), np.arange(70), rng.integers(0, 99, (70, 2))
    out_v, out_s = gpu.run(kernel, v, m, s, device_local=device_local)
    np.testing.assert_array_equal(out_v[:, :3], v[:, :3] * 2)
    np.testing.assert_array_equal(out_s["a"], s["a"] + m[:, 1, 0])
    np.testing.assert_array_equal(out_s["b"], s["b"] + 1)
    np.testing.assert_array_equal(out_s["c"], s["c"][:, ::-1])
    packed = np.zeros(70, [("a", "f4"), ("c", "f4", (2,)), ("b", "u4")])
    with pytest.raises(ArgumentTypeError, match=r"argument 2 .* struct of 16 bytes .* it takes st"):
        gpu.run(kernel, v, m, packed)


@pytest.mark.parametrize("dtype", ["f8", "i8", "i4", "u4", "f2"])
def test_an_array_of_another_type_is_refused(gpu: Gpu, dtype: str) -> None:
    with pytest.raises(ArgumentTypeError, match=r"argument 0 .* has dtype .* it takes float32"):
        gpu.run(scale(), np.zeros(9, dtype), params=(1,))


def test_scalars_and_lists_become_arrays_of_the_arguments_type(gpu: Gpu) -> None:
    total = glsl(
        buffer(0, "x"),
        buffer(1, "y", "float"),
        buffer(2, "z", "float"),
        main=ID + "if (i < x.length()) z[i] = float(x[i]) + y[0];",
    )
    np.testing.assert_array_equal(gpu.run(total, [1, 2, 3], 0.5), [1.5, 2.5, 3.5])
    refused: list[Any] = [[1, -2], [1 << 32], [1.5], ["a"], [[1], [2, 3]], [None]]
    for value in refused:
        with pytest.raises(ArgumentTypeError, match="argument 0"):
            gpu.run(total, value, 0.5)
    with pytest.raises(ArgumentTypeError, match=r"argument 1 .* float32 cannot hold"):
        gpu.run(total, [1], 1e40)


def test_a_list_keeps_every_bit_of_64_bit_integers(gpu: Gpu) -> None:
    copy = gx.Kernel.from_glsl(
        "#version 450\n#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n"
        f"layout(local_size_x = 1) in; {buffer(0, 'x', 'uint64_t')} {buffer(1, 'y', 'uint64_t')}"
        f"void main() {{ {ID} y[i] = x[i]; }}"
    )
    values = [(1 << 64) - 1, (1 << 53) + 1, 3]  # NumPy makes float64 of this list
    assert gpu.run(copy, values).tolist() == values
    for value in ([1 << 64], [-1, 1 << 63], [0.5, 1 << 63]):
        with pytest.raises(ArgumentTypeError, match="argument 0"):
            gpu.run(copy, value)


def test_a_list_is_refused_where_the_code_has_structs(gpu: Gpu) -> None:
    kernel = glsl(
        "struct S { float a; uint b; };",
        buffer(0, "s", "S"),
        buffer(1, "b"),
        main=ID + "if (i < s.length()) b[i] = s[i].b;",
    )
    with pytest.raises(ArgumentTypeError, match=r"argument 0 is a list; it takes .* struct of 8"):
        gpu.run(kernel, [(1.0, 2), (3.0, 4)])


@on_both_paths
def test_the_padding_of_elements_never_holds_old_bytes(
    chunking_gpu: Gpu, device_local: bool
) -> None:
    """An element-wise kernel writes three of the four numbers of a vec3."""
    copy = glsl(
        buffer(0, "x", "uvec3"),
        buffer(1, "y", "uvec3"),
        main=ID + "if (i < x.length()) y[i] = x[i];",
        split="elements",
    )
    x = np.full((250, 4), 77, np.uint32)
    out = chunking_gpu.empty((250, 4), np.uint32)  # the kernel may write to this memory itself
    for _ in range(3):
        out[...] = 99
        chunking_gpu.run(copy, x, out=out, device_local=device_local)
        assert (out == [77, 77, 77, 0]).all()


def test_the_initial_value_of_a_struct_has_no_bytes_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill_memory(*arguments: Any, **options: Any) -> Array:
        """Memory as `np.empty` may return it."""
        array = np.ones(*arguments, **options)
        array.reshape(-1).view(np.uint8)[:] = 0xAB
        return array

    shader = (
        "#version 450\nlayout(local_size_x = 1) in; struct S { uint a; uvec2 b; };"
        f"{buffer(0, 'x')} {buffer(1, 's', 'S')} void main() {{ s[0].a = x[0]; }}"
    )
    monkeypatch.setattr(np, "empty", fill_memory)
    assert gx.Kernel.from_glsl(shader).init == (bytes(16),)


# --- ranges ---


@on_both_paths
def test_length_is_exact_and_accesses_beyond_it_have_no_effect(
    gpu: Gpu, device_local: bool
) -> None:
    kernel = glsl(
        buffer(0, "x"), buffer(1, "y"), main=ID + "y[i] = x[i] + x.length();", size="local_size_x=7"
    )
    for size in (1, 1000, 1024, 999, 13):
        x = np.arange(size, dtype=np.uint32)
        np.testing.assert_array_equal(gpu.run(kernel, x, device_local=device_local), x + size)
    room = gpu.zeros(64 * 4, np.uint32)  # an output between words that must not change
    x = np.arange(64, dtype=np.uint32)
    gpu.run(kernel, x, out=room[64:128], device_local=device_local)
    np.testing.assert_array_equal(room[64:128], x + 64)
    assert not room[:64].any()
    assert not room[128:].any()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_length_of_short_arrays_is_exact_everywhere(gpu: Gpu, size: int) -> None:
    kernel = glsl(
        "#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require",
        "#extension GL_EXT_shader_8bit_storage : require",
        buffer(0, "x", "uint8_t", "readonly"),
        buffer(1, "y", "uint", "writeonly"),
        main="y[0] = x.length(); y[1] = x[x.length() - 1];",
        size="local_size_x = 1",
        out_shape=(2,),
        grid=(1, 1, 1),
    )
    x = np.arange(1, size + 1, dtype=np.uint8)
    mapped = gpu.asarray(x)
    for array in (x, mapped, gpu.to_device(x)):
        assert np.asarray(gpu.run(kernel, array)).tolist() == [size, size]


def test_a_uniform_buffer_larger_than_the_device_takes_is_refused(gpu: Gpu) -> None:
    most = gpu.device.limits.max_uniform_buffer_range // 16
    for vectors in (most, most + 1):
        kernel = glsl(
            f"layout(binding = 2, std140) uniform U {{ uvec4 t[{vectors}]; }};",
            buffer(0, "x", "uint", "readonly"),
            buffer(1, "y", "uint", "writeonly"),
            main=ID + f"if (i < x.length()) y[i] = x[i] + t[{vectors - 1}].w;",
        )
        table = np.arange(4 * vectors, dtype=np.uint32).reshape(vectors, 4)
        x = np.arange(10, dtype=np.uint32)
        for array in (x, gpu.to_device(x)):
            if vectors == most:
                found = np.asarray(gpu.run(kernel, array, params=(table,)))
                np.testing.assert_array_equal(found, x + 4 * vectors - 1)
            else:
                with pytest.raises(DeviceLacksError, match=r"a uniform buffer of .* bytes"):
                    gpu.run(kernel, array, params=(table,))


# --- outputs never hold old bytes ---


@on_both_paths
def test_a_histogram_starts_from_zeros_every_time(gpu: Gpu, device_local: bool) -> None:
    histogram = glsl(
        buffer(0, "x"), buffer(1, "h"),
        main=ID + "if (i < x.length()) atomicAdd(h[x[i]], 1);", out_shape=(10,),
    )  # fmt: skip
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 10, 1000).astype(np.uint32)
        expected = np.bincount(x, minlength=10)
        np.testing.assert_array_equal(gpu.run(histogram, x, device_local=device_local), expected)
        batch = gpu.run_batch(histogram, [(x,)] * 5, device_local=device_local, depth=2)
        assert all(np.array_equal(each, expected) for each in batch)


@on_both_paths
@pytest.mark.parametrize(
    ("kind", "dtype", "init"),
    [("uint", "u4", 7), ("float", "f4", 1.5), ("double", "f8", 0.1), ("dvec3", "f8", -2.5)],
)
def test_what_a_kernel_leaves_out_has_the_value_of_init(
    gpu: Gpu, device_local: bool, kind: str, dtype: str, init: float
) -> None:
    lanes = 4 if kind == "dvec3" else 1
    kernel = glsl(
        buffer(0, "x"), buffer(1, "y", kind),
        main=ID + f"if (i < x.length() && i % 3 == 0) y[i] = {kind}(i);", init=init,
    )  # fmt: skip
    size = 20_001
    x, i = np.zeros(size, np.uint32), np.arange(size)
    shape = (size, 4) if lanes == 4 else (size,)
    found = gpu.run(kernel, x, out_shape=shape, device_local=device_local)
    found = found.reshape(size, lanes)[:, : 3 if lanes == 4 else 1]
    expected = np.where(i % 3 == 0, i, np.array(init, dtype))[:, None]
    np.testing.assert_array_equal(found, np.broadcast_to(expected, found.shape))


# --- in-out ---


@on_both_paths
@pytest.mark.parametrize("mapped", [False, True], ids=["plain", "mapped"])
def test_an_in_out_argument_changes_only_in_place(
    gpu: Gpu, device_local: bool, mapped: bool
) -> None:
    kernel = glsl(buffer(0, "x", "int"), main=ID + "if (i < x.length()) x[i] = 3 * x[i] - 1;")
    a = np.arange(3000, dtype=np.int32)
    given = gpu.asarray(a) if mapped else a.copy()
    for _ in range(2):
        result = gpu.run(kernel, given, device_local=device_local)
        np.testing.assert_array_equal(result, 3 * a - 1)
        np.testing.assert_array_equal(given, a)
    other = np.empty_like(a)
    assert gpu.run(kernel, given, out=other, device_local=device_local) is other
    np.testing.assert_array_equal(other, 3 * a - 1)
    np.testing.assert_array_equal(given, a)
    assert gpu.run(kernel, given, out=given, device_local=device_local) is given
    np.testing.assert_array_equal(given, 3 * a - 1)


@on_both_paths
def test_an_in_out_device_array_changes_only_its_copy(gpu: Gpu, device_local: bool) -> None:
    kernel = glsl(buffer(0, "x", "int"), main=ID + "if (i < x.length()) x[i] = 3 * x[i] - 1;")
    a = np.arange(3000, dtype=np.int32)
    there = gpu.to_device(a)
    kept = gpu.run(kernel, there, keep=True, device_local=device_local)
    np.testing.assert_array_equal(kept.numpy(), 3 * a - 1)
    np.testing.assert_array_equal(gpu.run(kernel, there, device_local=device_local), 3 * a - 1)
    np.testing.assert_array_equal(there.numpy(), a)


def test_other_overlaps_of_out_and_an_in_out_kernels_arguments_are_refused(gpu: Gpu) -> None:
    kernel = glsl(
        buffer(0, "x"), buffer(1, "y"), buffer(2, "z"), main=ID + "y[i] += x[i]; z[i] = y[i];"
    )
    room = np.arange(200, dtype=np.uint32)
    x, y, z = room[:50].copy(), room[50:100], np.empty(50, np.uint32)
    gpu.run(kernel, x, y, out=(y, z))
    for out in ((x, z), (y, x), (room[60:110], z), (z, y)):
        with pytest.raises(ArgumentShapeError, match="overlaps argument"):
            gpu.run(kernel, x, y, out=out)


def test_a_strided_array_of_two_axes_may_be_its_own_result(gpu: Gpu) -> None:
    kernel = glsl(buffer(0, "x", "int"), main=ID + "if (i < x.length()) x[i] += 1;")
    room = np.zeros((6, 20), np.int32)
    part = room[:, ::2]
    part[...] = np.arange(60).reshape(6, 10)
    gpu.run(kernel, part, out=part)
    np.testing.assert_array_equal(part, np.arange(1, 61).reshape(6, 10))
    assert not room[:, 1::2].any()


def test_elementwise_in_out_kernels_are_chunked(chunking_gpu: Gpu) -> None:
    kernel = glsl(
        "layout(push_constant) uniform P { uint count; };",
        buffer(0, "x", "int"),
        main=ID + "if (i < count) x[i] = 3 * x[i] - 1;",
        split="elements",
    )
    a = np.arange(1234, dtype=np.int32)
    assert chunking_gpu.explain(kernel, a).chunk < 1234
    np.testing.assert_array_equal(chunking_gpu.run(kernel, a), 3 * a - 1)
    b = chunking_gpu.asarray(a)
    chunking_gpu.run(kernel, b, out=b)
    np.testing.assert_array_equal(b, 3 * a - 1)


# --- split and grid ---


@pytest.mark.parametrize(
    ("declarations", "main", "words"),
    [
        ((), "atomicAdd(y[0], x[0]);", "atomic operations on binding 1"),
        (("shared uint s[4];",), "s[0] = x[0]; y[0] = s[0];", "shared memory"),
        ((), "y[0] = x[0]; barrier(); y[1] = x[1];", "barriers"),
    ],
    ids=["atomics", "shared", "barriers"],
)
def test_elements_that_depend_on_each_other_cannot_be_split(
    declarations: tuple[str, ...], main: str, words: str
) -> None:
    with pytest.raises(KernelError, match=f"{words}.*give split='whole'"):
        glsl(*declarations, buffer(0, "x"), buffer(1, "y"), main=main, split="elements")


@on_both_paths
def test_a_transpose_runs_in_two_dimensions(gpu: Gpu, device_local: bool) -> None:
    transpose = glsl(
        "layout(push_constant) uniform P { int rows; int columns; };",
        buffer(0, "x", "float"), buffer(1, "z", "float"),
        main="uint c = gl_GlobalInvocationID.x, r = gl_GlobalInvocationID.y;"
        "if (c < columns && r < rows) z[c * rows + r] = x[r * columns + c];",
        size="local_size_x = 8, local_size_y = 8", count=False,
        grid=lambda m: (-(-m[1] // 8), -(-m[0] // 8), 1), out_shape=lambda m: m[::-1],
    )  # fmt: skip
    for shape in ((37, 53), (1, 100), (8, 8)):
        m = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        found = gpu.run(transpose, m, params=shape, device_local=device_local)
        np.testing.assert_array_equal(found, m.T)


def test_a_grid_may_depend_on_the_parameters(gpu: Gpu) -> None:
    fill = glsl(
        "layout(push_constant) uniform P { uint width; };", buffer(0, "y"),
        main="y[gl_WorkGroupID.x] = 1 + gl_NumWorkGroups.x;", size="local_size_x = 1",
        count=False, grid=lambda params: (params["width"],), out_shape=(9,),
    )  # fmt: skip
    for width in (3, 9, 1, 3):
        expected = [width + 1] * width + [0] * (9 - width)
        assert gpu.run(fill, params={"width": width}).tolist() == expected
    with pytest.raises(DeviceLacksError, match="work-groups in x"):
        gpu.run(fill, params={"width": (1 << 32) - 1})


def test_without_a_grid_the_largest_argument_has_an_invocation_per_element(gpu: Gpu) -> None:
    outer = glsl(
        buffer(0, "a", "float"), buffer(1, "b", "float"), buffer(2, "c", "float"),
        main=ID + "if (i < c.length()) c[i] = a[i / b.length()] * b[i % b.length()];",
        out_shape=lambda a, b: (a[0], b[0]),
    )  # fmt: skip
    a, b = np.arange(100, dtype=np.float32), np.arange(90, dtype=np.float32)
    np.testing.assert_array_equal(gpu.run(outer, a, b), np.outer(a, b))


def test_jobs_of_a_stream_with_equal_sizes_have_the_grid_and_words_of_their_own_shape(
    gpu: Gpu,
) -> None:
    transpose = glsl(
        "layout(push_constant) uniform P { uint count; uint rows; uint columns; };",
        buffer(0, "x"), buffer(1, "z"),
        main="uint c = gl_GlobalInvocationID.x, r = gl_GlobalInvocationID.y;"
        "if (c < columns && r < rows) z[c * rows + r] = x[r * columns + c];",
        size="local_size_x = 2, local_size_y = 2", push=lambda m: m,
        grid=lambda m: (-(-m[1] // 2), -(-m[0] // 2)), out_shape=lambda m: m[::-1],
    )  # fmt: skip
    shapes = [(2, 6), (3, 4), (12, 1), (2, 6), (1, 12), (6, 2)]
    jobs = [(np.arange(12, dtype=np.uint32).reshape(shape),) for shape in shapes]
    for results in (list(gpu.stream(transpose, jobs)), gpu.run_batch(transpose, jobs)):
        for (x,), found in zip(jobs, results, strict=True):
            np.testing.assert_array_equal(found, x.T)


# --- parameters ---


@on_both_paths
def test_new_parameters_need_no_new_pipeline_slot_or_recording(
    fresh_gpu: OpenGpu, device_local: bool
) -> None:
    gpu, kernel, x = fresh_gpu(), scale(), np.arange(300, dtype=np.float32)
    for factor in range(20):
        found = gpu.run(kernel, x, params={"factor": factor}, device_local=device_local)
        np.testing.assert_array_equal(found, factor * x)
    found = gpu.run(kernel, x, params=(2, 0.5), device_local=device_local)
    np.testing.assert_array_equal(found, 2 * x + 0.5)
    stats = gpu.stats()
    assert (stats.pipelines.misses, stats.slots.misses, stats.recordings) == (1, 1, 1)


def test_parameters_are_pushed_where_uniform_buffers_cannot_hold_them(
    fresh_gpu: OpenGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu, x = fresh_gpu(), np.arange(300, dtype=np.float32)
    device = gpu._session.resources.device
    features = device.info.features - {"uniformBufferStandardLayout"}
    monkeypatch.setattr(device, "info", dataclasses.replace(device.info, features=features))
    for factor in (1, 2, 1, 3):
        found = gpu.run(scale(), x, params={"factor": factor})
        np.testing.assert_array_equal(found, factor * x)
    assert gpu.stats().recordings == 3


@on_both_paths
def test_each_job_of_a_batch_and_a_stream_has_its_own_parameters(
    gpu: Gpu, device_local: bool
) -> None:
    kernel, x = scale(), np.arange(300, dtype=np.float32)
    params = [{"factor": k} for k in range(20)]
    jobs = [(x,)] * 20
    for found in (
        gpu.run_batch(kernel, jobs, params=params, device_local=device_local, depth=3),
        list(gpu.stream(kernel, iter(jobs), params=params, device_local=device_local)),
    ):
        for k, each in enumerate(found):
            np.testing.assert_array_equal(each, k * x)
    same = gpu.run_batch(kernel, jobs[:3], params=(3, 1))
    assert all(np.array_equal(each, 3 * x + 1) for each in same)
    with pytest.raises(ArgumentTypeError, match="params lists 2 entries for 3 jobs"):
        gpu.run_batch(kernel, jobs[:3], params=params[:2])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        (None, "parameter 'factor' has no value and no default"),
        ({"offset": 1}, "parameter 'factor' has no value"),
        ({"facto": 1}, "params has 'facto'; the parameters are 'factor', 'offset'"),
        ({"count": 3}, "parameter 'factor' has no value and no default"),
        ((1, 2, 3), "'factor', 'offset'; 'count' is the number of elements, which every call sets"),
        ([1, 2], "params is a list; it must be a dict by name or a tuple by position"),
        ({"factor": "1"}, "factor"),
        ({"factor": 1e40}, "factor"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(gpu: Gpu, params: Any, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=re.escape(words)):
        gpu.run(scale(), np.zeros(3, np.float32), params=params)


@on_both_paths
def test_a_uniform_buffer_holds_parameters(gpu: Gpu, device_local: bool) -> None:
    kernel = glsl(
        "layout(binding = 3) uniform U { vec3 v; float s; mat2 m; };",
        buffer(0, "x", "float"), buffer(1, "y", "float"),
        main=ID + "if (i < x.length()) y[i] = x[i] * v[i % 3] + s + m[1][0];",
    )  # fmt: skip
    x = np.arange(90, dtype=np.float32)
    for s in (0, 5):
        params = {"v": [1, 2, 3], "s": s, "m": [[0, 0], [7, 0]]}
        found = gpu.run(kernel, x, params=params, device_local=device_local)
        np.testing.assert_array_equal(found, x * np.tile([1, 2, 3], 30) + s + 7)


# --- what else is allowed ---


@on_both_paths
def test_a_kernel_may_have_no_inputs(gpu: Gpu, device_local: bool) -> None:
    indices = glsl(buffer(0, "y"), main=ID + "if (i < y.length()) y[i] = i * i;")
    for shape in ((1,), (1000,), (10, 20)):
        found = gpu.run(indices, out_shape=shape, device_local=device_local)
        expected = np.arange(np.prod(shape), dtype=np.uint32).reshape(shape) ** 2
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ArgumentShapeError, match="no inputs, so nothing says how large"):
        gpu.run(indices)


@on_both_paths
def test_narrow_and_wide_types_are_exact(gpu: Gpu, device_local: bool) -> None:
    extensions = "\n".join(
        f"#extension GL_EXT_shader_explicit_arithmetic_types_{kind} : require"
        for kind in ("int8", "int16", "int64")
    )
    kernel = glsl(
        extensions,
        "#extension GL_EXT_shader_8bit_storage : require\n"
        "#extension GL_EXT_shader_16bit_storage : require",
        buffer(0, "a", "uint8_t"), buffer(1, "b", "int16_t"), buffer(2, "c", "int64_t"),
        buffer(3, "d", "uint8_t"), buffer(4, "e", "int64_t"),
        main=ID + "if (i >= a.length()) return;"
        "d[i] = a[i] + uint8_t(200); e[i] = c[i] * int64_t(b[i]);",
    )  # fmt: skip
    for size in (1, 2, 3, 77, 1001):  # sizes that are no multiple of four bytes
        rng = np.random.default_rng(size)
        a = rng.integers(0, 256, size).astype(np.uint8)
        b = rng.integers(-99, 99, size).astype(np.int16)
        c = rng.integers(-(1 << 40), 1 << 40, size)
        d, e = gpu.run(kernel, a, b, c, device_local=device_local)
        np.testing.assert_array_equal(d, a + np.uint8(200))
        np.testing.assert_array_equal(e, c * b)


def test_the_number_of_elements_is_fixed_where_the_code_fixes_it(gpu: Gpu) -> None:
    kernel = glsl(
        "layout(binding = 0) buffer A { uint a[16]; };",
        "layout(binding = 1) buffer B { uint b[8]; };",
        main=ID + "if (i < 8) b[i] = a[i] + a[i + 8];",
    )
    a = np.arange(16, dtype=np.uint32)
    assert gpu.run(kernel, a).tolist() == (a[:8] + a[8:]).tolist()
    with pytest.raises(ArgumentShapeError, match="15 elements; the code has a fixed length of 16"):
        gpu.run(kernel, a[:15])


# --- outputs that a kernel does not write ---

COPY_ODD = """
#version 450
layout(local_size_x = 64) in;
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    if (i < x.length() && x[i] % 2 == 1) y[i] = x[i];
}
"""


@on_both_paths
def test_elements_that_a_kernel_skips_are_zero(
    chunking_gpu: gx.PersistentVulkanBackend, device_local: bool
) -> None:
    gpu, copy_odd = chunking_gpu, gx.Kernel.from_glsl(COPY_ODD, split="elements")
    x = np.arange(250, dtype=np.uint32)
    expected = np.where(x % 2 == 1, x, 0)
    add = gx.kernels.load("vector_add_u32")
    gpu.run_batch(add, [(x + 1000, x)] * 5, device_local=device_local)  # old bytes
    there, more = gpu.to_device(x), gpu.to_device(x + 1000)
    for _ in range(2):
        np.testing.assert_array_equal(gpu.run(copy_odd, x, device_local=device_local), expected)
        for result in gpu.run_batch(copy_odd, [(x,)] * 3, device_local=device_local):
            np.testing.assert_array_equal(result, expected)
        gpu.run(add, more, more).numpy()
        np.testing.assert_array_equal(gpu.run(copy_odd, there).numpy(), expected)
