"""Arguments of WGSL kernels: initial values, in-out arguments, scratch, exact sizes, types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, KernelError
from gpu_executor.kernel import Kernel
from tests.conftest import OpenWebGpu
from tests.support.webgpu import (
    count_made,
    declare_buffers,
    finish_compiling,
    make_element_kernel,
    make_whole_kernel,
)

RNG = np.random.default_rng(7)


def some_words(count: int) -> np.ndarray[Any, Any]:
    return RNG.integers(0, 1 << 32, count, np.uint32)


# --- initial values of outputs ---

HISTOGRAM = make_whole_kernel(
    declare_buffers("read u32", "read_write atomic<u32>"),
    "if (i < param(0u)) { atomicAdd(&b1[b0[i] & 15u], 1u); }",
    buffers="in u4, out u4",
    out_shape=(16,),
)


def test_a_histogram_starts_from_zeros_every_time(each_webgpu: gx.WgpuExecutor) -> None:
    jobs = [(some_words(count),) for count in (1000, 1000, 17, 40_000)]
    expected = [np.bincount(x & 15, minlength=16) for (x,) in jobs]
    for _ in range(3):
        for (x,), right in zip(jobs, expected, strict=True):
            np.testing.assert_array_equal(each_webgpu.run(HISTOGRAM, x), right)
        for result, right in zip(each_webgpu.run_batch(HISTOGRAM, jobs), expected, strict=True):
            np.testing.assert_array_equal(result, right)


def make_even_writer(dtype: str, **options: Any) -> Kernel:
    """A kernel that writes every second word of its output."""
    return make_whole_kernel(
        declare_buffers("read u32", "read_write u32"),
        "for (var j = 2u * i; j < arrayLength(&b1); j += 2u * work_group * groups.x) {"
        " b1[j] = b0[j]; }",
        buffers=[("in", dtype), ("out", dtype)],
        **options,
    )


@pytest.mark.parametrize(
    ("dtype", "init"),
    [("u4", 0), ("u4", 7), ("i4", -1), ("f4", -1.5), (("u8", (6,)), 1 << 40), ("u1", 9), ("u2", 5)],
    ids=str,
)
def test_what_a_kernel_does_not_write_holds_the_initial_value(
    each_webgpu: gx.WgpuExecutor, dtype: Any, init: Any
) -> None:
    element = np.dtype(dtype)
    kernel = make_even_writer(dtype, init=init)
    for count in (5, 300, 5):
        words = some_words(-(-count * element.itemsize // 4))
        given = np.frombuffer(words.tobytes()[: count * element.itemsize], element.base)
        given = given.reshape(count, *element.shape)
        expected = np.full_like(given, init)
        bytes_of = [each.reshape(-1).view(np.uint8) for each in (expected, given)]
        for start in range(0, given.nbytes, 8):
            bytes_of[0][start : start + 4] = bytes_of[1][start : start + 4]
        for _ in range(2):
            assert each_webgpu.run(kernel, given).tobytes() == expected.tobytes()


def test_each_output_has_its_own_initial_value(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", *["read_write u32"] * 3),
        "if (i == 0u) { b1[0] = b0[0]; b2[0] = b0[0]; } if (i < param(0u)) { b3[i] = b0[i]; }",
        buffers="in u4, out u4, out u4, out u4",
        init=[3, 0, None],
    )
    x = some_words(70_000)
    for _ in range(2):
        threes, zeros, copy = each_webgpu.run(kernel, x)
        np.testing.assert_array_equal(threes, np.r_[x[:1], np.full(len(x) - 1, 3)])
        np.testing.assert_array_equal(zeros, np.r_[x[:1], np.zeros(len(x) - 1)])
        np.testing.assert_array_equal(copy, x)


@pytest.mark.parametrize("init", [0, 7])
def test_an_element_wise_kernel_may_have_an_initial_value(
    open_webgpu: OpenWebGpu, init: int
) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-storage-buffer-binding-size"] = 4 * 20_000
    kernel = make_element_kernel(
        declare_buffers("read u32", "read_write u32"),
        "if (b0[i] % 2u == 1u) { b1[i] = b0[i]; }",
        buffers="in u4, out u4",
        init=init,
    )
    jobs = [(some_words(count),) for count in (5, 50_000, 5, 100)]
    for _ in range(2):
        for (x,), result in zip(jobs, gpu.run_batch(kernel, jobs), strict=True):
            np.testing.assert_array_equal(result, np.where(x % 2, x, init))


def test_a_fill_of_more_work_groups_than_a_row_holds(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-compute-workgroups-per-dimension"] = 3
    x = some_words(5000)
    expected = np.where(np.arange(len(x)) % 2, 7, x)
    kernel = make_even_writer("u4", init=7, grid=(1,))
    np.testing.assert_array_equal(gpu.run(kernel, x), expected)


# --- in-out arguments ---

ADD_TO = make_element_kernel(
    declare_buffers("read u32", "read_write u32", "read_write u32"),
    "b2[i] = b1[i]; b1[i] += b0[i];",
    buffers="in u4, inout u4, out u4",
)
"""Returns x + y and the old y."""


@pytest.mark.parametrize("count", [1, 1000, 20_000])
def test_an_in_out_argument_changes_only_in_place(each_webgpu: gx.WgpuExecutor, count: int) -> None:
    x, y = some_words(count), some_words(count)
    before = y.copy()
    for _ in range(3):
        total, old = each_webgpu.run(ADD_TO, x, y)
        np.testing.assert_array_equal(total, x + before)
        np.testing.assert_array_equal(old, before)
        np.testing.assert_array_equal(y, before)
    other, old = np.zeros_like(y), np.zeros_like(y)
    assert each_webgpu.run(ADD_TO, x, y, out=(other, old))[0] is other
    np.testing.assert_array_equal(other, x + before)
    np.testing.assert_array_equal(y, before)
    assert each_webgpu.run(ADD_TO, x, y, out=(y, old))[0] is y
    np.testing.assert_array_equal(y, x + before)
    np.testing.assert_array_equal(old, before)
    jobs = [(x[:n], some_words(n)) for n in (count, 1, count)]
    for (a, b), (total, old) in zip(jobs, each_webgpu.run_batch(ADD_TO, jobs), strict=True):
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(old, b)


def test_an_in_out_argument_in_the_array_of_an_input(each_webgpu: gx.WgpuExecutor) -> None:
    """WebGPU takes no buffer as an input and as an output, so the kernel gets a copy."""
    given = some_words(300)
    x, y, _ = np.split(given, 3)
    for written in (slice(100, 200), slice(200, 300)):
        both, old = each_webgpu.to_device(given), each_webgpu.to_device(np.zeros_like(y))
        each_webgpu.run(ADD_TO, both[:100], both[100:200], out=(both[written], old))
        expected = given.copy()
        expected[written] = x + y
        np.testing.assert_array_equal(both.numpy(), expected)
        np.testing.assert_array_equal(old.numpy(), y)


def test_in_out_arguments_are_chunked(open_webgpu: OpenWebGpu) -> None:
    gpu = open_webgpu()
    gpu._device.limits["max-storage-buffer-binding-size"] = 4 * 30_000
    x, y = some_words(70_000), some_words(70_000)
    before = y.copy()
    gpu.run(ADD_TO, x, y, out=(y, np.empty_like(y)))
    np.testing.assert_array_equal(y, x + before)
    assert gpu.stats().chunks == 3


def test_a_kernel_may_have_in_out_arguments_only(each_webgpu: gx.WgpuExecutor) -> None:
    reverse_pairs = make_whole_kernel(
        declare_buffers("read_write u32"),
        "let j = 2u * i; if (j + 1u < arrayLength(&b0)) {"
        " let low = b0[j]; b0[j] = b0[j + 1u]; b0[j + 1u] = low; }",
        buffers="inout u4",
    )
    x = some_words(1001)
    expected = np.r_[x[:-1].reshape(-1, 2)[:, ::-1].reshape(-1), x[-1:]]
    for _ in range(3):
        np.testing.assert_array_equal(each_webgpu.run(reverse_pairs, x), expected)
    each_webgpu.run(reverse_pairs, x, out=x)
    np.testing.assert_array_equal(x, expected)
    with pytest.raises(ArgumentShapeError, match="out 0 overlaps argument 0"):
        each_webgpu.run(reverse_pairs, x[1:], out=x[:-1])


# --- scratch buffer and status word ---

TOTAL = make_whole_kernel(
    declare_buffers("read u32", "read_write u32")
    + """
@group(0) @binding(2) var<storage, read_write> scratch: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> status: atomic<u32>;
""",
    """
    if (i < param(0u)) {
        if (b0[i] == 99u) { atomicMin(&status, i); }
        atomicAdd(&scratch[i % 3u], b0[i]);
    }
    storageBarrier();
    if (i == 0u) {
        b1[0] = atomicLoad(&scratch[0]) + atomicLoad(&scratch[1]) + atomicLoad(&scratch[2]);
        b1[1] = arrayLength(&scratch);
    }
    """,
    buffers=["in u4", "out u4", ("scratch", lambda shape: 3 + shape[0]), "status"],
    out_shape=(2,),
    grid=(1,),
)
"""Adds up to 64 words in a scratch buffer; reports the word 99."""


def test_a_scratch_buffer_is_zero_when_a_dispatch_begins(each_webgpu: gx.WgpuExecutor) -> None:
    for count in (5, 64, 5, 5):
        x = RNG.integers(0, 99, count).astype(np.uint32)
        for _ in range(2):
            np.testing.assert_array_equal(each_webgpu.run(TOTAL, x), [x.sum(), 3 + count])
    bad = np.arange(95, 105, dtype=np.uint32)
    for _ in range(2):
        with pytest.raises(gx.ElementRangeError) as caught:
            each_webgpu.run(TOTAL, bad)
        assert caught.value.index == 4
    np.testing.assert_array_equal(each_webgpu.run(TOTAL, bad[5:]), [bad[5:].sum(), 8])


def test_a_scratch_buffer_of_an_element_wise_kernel_is_refused() -> None:
    with pytest.raises(KernelError, match=r"share its scratch buffer; give split='whole'"):
        make_element_kernel(
            declare_buffers("read u32", "read_write u32"),
            "b1[i] = b0[i];",
            buffers=["in u4", "out u4", ("scratch", lambda shape: 5)],
        )


# --- kernels without inputs ---


def test_a_kernel_without_inputs_fills_what_out_shape_says(each_webgpu: gx.WgpuExecutor) -> None:
    body = "if (i < arrayLength(&b0)) { b0[i] = i * i + param(0u); }"
    generate = make_whole_kernel(declare_buffers("read_write u32"), body, buffers="out u4")
    for count in (1, 1000, 20_000):
        expected = np.arange(count, dtype=np.uint32) ** 2 + np.uint32(count)
        for _ in range(2):
            np.testing.assert_array_equal(each_webgpu.run(generate, out_shape=(count,)), expected)
    result = each_webgpu.run(generate, out_shape=(3, 7))
    np.testing.assert_array_equal(result, (np.arange(21).reshape(3, 7) ** 2 + 21))
    out = np.zeros(5, np.uint32)
    assert each_webgpu.run(generate, out_shape=5, out=out) is out
    np.testing.assert_array_equal(out, np.arange(5) ** 2 + 5)
    with pytest.raises(ArgumentShapeError, match="out_shape="):
        each_webgpu.run(generate)
    fixed = make_whole_kernel(
        declare_buffers("read_write u32"), body, buffers="out u4", out_shape=(4,)
    )
    for result in (each_webgpu.run(fixed), *each_webgpu.run_batch(fixed, [(), ()])):
        np.testing.assert_array_equal(result, np.arange(4) ** 2 + 4)


# --- exact sizes ---

LENGTHS = "if (i == 0u) { b2[0] = arrayLength(&b0); b2[1] = arrayLength(&b1); }"
COUNTS = [1, 3, 1000, 1001, 16_384, 16_385, 40_000]


def test_array_length_is_the_number_of_elements(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", "read vec2<u32>", "read_write u32"),
        LENGTHS,
        buffers=["in u4", ("in", ("u4", (2,))), "out u4"],
        out_shape=(2,),
    )
    jobs = [(some_words(n), some_words(2 * m).reshape(m, 2)) for n in COUNTS for m in (1, n)]
    for _ in range(2):
        for (x, y), result in zip(jobs, each_webgpu.run_batch(kernel, jobs), strict=True):
            np.testing.assert_array_equal(result, [len(x), len(y)])
            np.testing.assert_array_equal(each_webgpu.run(kernel, x, y), [len(x), len(y)])


def test_array_length_of_an_element_wise_kernel_is_that_of_the_task(
    open_webgpu: OpenWebGpu,
) -> None:
    gpu = open_webgpu()
    kernel = make_element_kernel(
        declare_buffers("read u32", "read_write u32"),
        "b1[i] = b0[i] + 1000000u * arrayLength(&b0) - arrayLength(&b1);",
        buffers="in u4, out u4",
    )
    jobs = [(np.arange(count, dtype=np.uint32),) for count in COUNTS]

    def check(results: list[Any]) -> None:
        for (x,), result in zip(jobs, results, strict=True):
            np.testing.assert_array_equal(result, x + np.uint32(999_999 * len(x) & 0xFFFFFFFF))

    for _ in range(3):
        check(gpu.run_batch(kernel, jobs))
        check([gpu.run(kernel, x) for (x,) in jobs])
    finish_compiling(gpu)
    before = count_made(gpu.stats())
    check(gpu.run_batch(kernel, jobs))
    assert count_made(gpu.stats()) == before


def test_bytes_behind_an_array_are_zero_up_to_a_whole_word(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", "read_write u32"),
        "if (i < arrayLength(&b0)) { b1[i] = b0[i]; }",
        buffers="in u1, out u4",
        out_shape=lambda shape: (-(-shape[0] // 4),),
    )
    for count in (200, 5, 6, 7, 8, 90_001):
        x = np.full(count, 255, np.uint8)
        for _ in range(2):
            result = each_webgpu.run(kernel, x)
            assert result.tobytes() == x.tobytes().ljust(4 * len(result), b"\0")


def test_an_array_smaller_than_the_text_needs_is_refused(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", "read_write u32").replace("array<u32>", "array<u32, 64>", 1),
        "if (i < 64u) { b1[i] = b0[i]; }",
        buffers="in u4, out u4",
        name="fixed",
    )
    x = some_words(64)
    for _ in range(2):
        with pytest.raises(KernelError, match=r"'fixed': argument 0 has 40 bytes; .* least 256"):
            each_webgpu.run(kernel, x[:10])
        np.testing.assert_array_equal(each_webgpu.run(kernel, x), x)


# --- types and values ---


def test_scalars_and_lists_are_converted(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read f32", "read f32", "read_write f32"),
        "if (i < param(0u)) { b2[i] = b0[i] * b1[0]; }",
        buffers="in f4, in f4, out f4",
    )
    np.testing.assert_array_equal(each_webgpu.run(kernel, [1, 2, 3.5], 2), [2, 4, 7])
    (result,) = each_webgpu.run_batch(kernel, [([1, 2], 0.5)])
    np.testing.assert_array_equal(result, [0.5, 1])
    with pytest.raises(ArgumentTypeError, match=r"argument 1 .* cannot hold"):
        each_webgpu.run(kernel, [1.0], 1e300)


def test_no_array_of_another_dtype_is_converted_by_value(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_element_kernel(
        declare_buffers("read u32", "read_write u32"), "b1[i] = b0[i];", buffers="in u4, out u4"
    )
    x = some_words(100)
    for wrong in (x.astype(np.int32), x.astype(np.float32), x.astype(np.uint64)):
        with pytest.raises(ArgumentTypeError, match=r"job 1: .* argument 0 has dtype"):
            each_webgpu.run_batch(kernel, [(x,), (wrong,)])
    swapped = x.astype(">u4")
    for result in each_webgpu.run_batch(kernel, [(x,), (swapped,), (x[::-1],)])[:2]:
        np.testing.assert_array_equal(result, x)


def test_structs_are_copied_as_bytes(each_webgpu: gx.WgpuExecutor) -> None:
    particle = np.dtype({"names": ["mass", "id", "at"], "formats": ["f4", "u4", ("f4", (2,))]})
    text = """
struct Particle { mass: f32, id: u32, position: vec2<f32> }
@group(0) @binding(0) var<storage, read> b0: array<Particle>;
@group(0) @binding(1) var<storage, read_write> b1: array<Particle>;
"""
    kernel = make_element_kernel(
        text,
        "b1[i] = Particle(2.0 * b0[i].mass, b0[i].id + 1u, b0[i].position.yx);",
        buffers=[("in", particle), ("out", particle)],
    )
    x = np.zeros(300, particle)
    x["mass"], x["id"] = np.arange(300), some_words(300)
    x["at"] = RNG.standard_normal((300, 2))
    for _ in range(2):
        result = each_webgpu.run(kernel, x)
        assert result.dtype == particle
        np.testing.assert_array_equal(result["mass"], 2 * x["mass"])
        np.testing.assert_array_equal(result["id"], x["id"] + 1)
        np.testing.assert_array_equal(result["at"], x["at"][:, ::-1])


@pytest.mark.parametrize(
    ("dtype", "directive", "type_", "feature"),
    [
        ("f2", "enable f16;", "f16", "shader-f16"),
        ("f8", "", "f64", "shader-f64"),
        ("i8", "", "i64", "shader-int64"),
        ("u8", "", "u64", "shader-int64"),
    ],
)
def test_types_beyond_the_standard_run_where_the_device_has_them(
    open_webgpu: OpenWebGpu, dtype: str, directive: str, type_: str, feature: str
) -> None:
    """Lavapipe has no f16 on arm64."""
    kernel = make_element_kernel(
        f"// doubles\n{directive}\n" + declare_buffers(f"read {type_}", f"read_write {type_}"),
        "b1[i] = b0[i] + b0[i];",
        buffers=[("in", dtype), ("out", dtype)],
    )
    gpu, x = open_webgpu(), np.arange(-5, 6).astype(dtype)
    if feature in gpu.device.features:
        np.testing.assert_array_equal(gpu.run(kernel, x), x + x)
    else:
        with pytest.raises(KernelError, match=f"`{type_}` .* not supported"):
            gpu.run(kernel, x)


def test_a_declaration_that_the_text_contradicts_is_refused(open_webgpu: OpenWebGpu) -> None:
    gpu, x = open_webgpu(), np.ones(5)
    buffers, body = declare_buffers("read f32", "read_write f32"), "b1[i] = b0[i];"
    wide = make_element_kernel(buffers, body, buffers="in f8, out f4")
    with pytest.raises(KernelError, match=r"argument 0 has dtype float64, but .* float32"):
        gpu.run(wide, x)
    written = make_element_kernel(
        declare_buffers("read_write f32", "read_write f32"), body, buffers="in f4, out f4"
    )
    with pytest.raises(KernelError, match=r"argument 0 is declared 'in', .* var<storage, read>"):
        gpu.run(written, x.astype("f4"))
    never = make_element_kernel(
        declare_buffers("read f32", "read f32"), "", buffers="in f4, out f4"
    )
    with pytest.raises(KernelError, match=r"argument 1 is declared 'out', .* read_write>"):
        gpu.run(never, x.astype("f4"))
    complex_ = make_element_kernel(
        declare_buffers("read vec2<f32>", "read_write vec2f"),
        body,
        buffers=["in c8", ("out", ("f4", (2,)))],
    )
    result = gpu.run(complex_, np.array([1 + 2j, 3 - 4j], "c8"))
    np.testing.assert_array_equal(result, [[1, 2], [3, -4]])
