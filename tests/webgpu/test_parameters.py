"""Parameters of calls on WebGPU: the words that `param` returns."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.wgsl import WgslCode
from tests.support.custom_kernels import buffer
from tests.support.glsl import compile_glsl
from tests.support.webgpu import (
    count_made,
    declare_buffers,
    finish_compiling,
    make_element_kernel,
    make_text,
    make_whole_kernel,
)

AFFINE = make_element_kernel(
    declare_buffers("read f32", "read_write f32"),
    "b1[i] = bitcast<f32>(param(1u)) * b0[i] + f32(bitcast<i32>(param(2u)));",
    dtypes=["f4", "f4"],
    params=["factor", "offset"],
)
X = np.arange(1000, dtype=np.float32)


def test_parameters_are_given_by_name_or_by_position(each_webgpu: gx.WgpuExecutor) -> None:
    run = each_webgpu.run
    np.testing.assert_array_equal(run(AFFINE, X, params={"factor": 2.0, "offset": -3}), 2 * X - 3)
    np.testing.assert_array_equal(run(AFFINE, X, params=(0.5, 7)), X / 2 + 7)
    with pytest.raises(ArgumentTypeError, match="'offset' has no value"):
        run(AFFINE, X, params={"factor": 2.0})
    with pytest.raises(ArgumentTypeError, match=r"params has 'size'; .* 'factor', 'offset'"):
        run(AFFINE, X, params={"size": 1})


@pytest.mark.parametrize("factor", [2, 2.0, np.float32(2), np.float64(2), np.int64(2)])
def test_a_word_has_the_type_that_the_text_reads(
    each_webgpu: gx.WgpuExecutor, factor: float
) -> None:
    np.testing.assert_array_equal(each_webgpu.run(AFFINE, X, params=(factor, -3)), 2 * X - 3)
    for value in (1.0, np.float32(1), 1 << 32, "1", None):
        with pytest.raises(ArgumentTypeError, match=r"'offset' is .*; it takes an integer of 32"):
            each_webgpu.run(AFFINE, X, params=(factor, value))


def test_the_type_of_a_word_is_unknown_where_the_text_reads_it_in_several_ways() -> None:
    text = "bitcast<f32>(param(1u)); bitcast< f32 >( param( 2 ) ); param(1u); // param(2u)\n"
    text += (
        "bitcast<i32>(param(3u)) + bitcast<i32>(param(3u)); param(i); bitcast<f32>(param(4u) + 1);"
    )
    assert WgslCode(text).find_param_types() == {2: "f32", 3: "i32"}


def test_each_job_of_a_batch_may_have_its_own_parameters(each_webgpu: gx.WgpuExecutor) -> None:
    jobs = [(X[:n],) for n in (5, 1000, 5, 300)]
    given: list[Any] = [{"factor": float(n), "offset": -n} for n in range(4)]
    for _ in range(2):
        results = each_webgpu.run_batch(AFFINE, jobs, params=given)
        for number, (result, (x,)) in enumerate(zip(results, jobs, strict=True)):
            np.testing.assert_array_equal(result, number * x - number)
        for result, (x,) in zip(
            each_webgpu.run_batch(AFFINE, jobs, params=(3.0, 1)), jobs, strict=True
        ):
            np.testing.assert_array_equal(result, 3 * x + 1)
    with pytest.raises(ArgumentTypeError, match="params lists 3 entries for 4 jobs"):
        each_webgpu.run_batch(AFFINE, jobs, params=given[:3])


def test_new_values_make_nothing_new(each_webgpu: gx.WgpuExecutor) -> None:
    for _ in range(3):
        each_webgpu.run(AFFINE, X, params=(1.0, 0))
    finish_compiling(each_webgpu)
    before = count_made(each_webgpu.stats())
    for number in range(100):
        result = each_webgpu.run(AFFINE, X, params=(float(number), -number))
        np.testing.assert_array_equal(result, number * X - number)
    assert count_made(each_webgpu.stats()) == before


def test_parameters_follow_the_data_and_the_words_of_push_of(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", "read_write u32"),
        "if (i < arrayLength(&b1)) { b1[i] = param(i); }",
        dtypes=["u4", "u4"],
        data=struct.pack("<2I", 11, 12),
        push_of=lambda shape: [shape[0], 13],
        params=["first", "second"],
        out_shape=(9,),
    )
    for count in (40, 41):
        result = each_webgpu.run(kernel, np.zeros(count, np.uint32), params=(14, 15))
        np.testing.assert_array_equal(result, [count, 11, 12, count, 13, 14, 15, 0, 0])


SHOWN = """
layout(local_size_x_id = 0) in;
layout(push_constant, std430) uniform Push {
    uint count; uint fixed_word; float factor; vec3 direction; double wide; int64_t number;
    float16_t half_; uint16_t small; int16_t negative; mat2 matrix;
};
layout(set = 0, binding = 2, std140) uniform Settings { float power; ivec2 pair; float list[2]; };
"""
EXTENSIONS = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_16bit_storage : require
"""
VALUES = {
    "factor": 1.5, "direction": (2.5, 3.5, 4.5), "wide": np.pi, "number": -(1 << 40), "half_": 0.25,
    "small": 65_000, "negative": -7, "matrix": ((1, 2), (3, 4)), "power": 8.5, "pair": (-9, 10),
    "list": (11.5, 12.5),
}  # fmt: skip
WORDS = struct.pack(
    "<I4fdqfIi5f2i2f", 99, 1.5, 2.5, 3.5, 4.5, np.pi, -(1 << 40), 0.25, 65_000, -7,
    1, 2, 3, 4, 8.5, -9, 10, 11.5, 12.5,
)  # fmt: skip


def make_both(words: int) -> Kernel:
    """A kernel in SPIR-V and in WGSL; the WGSL returns that many words of its parameters."""
    spirv = compile_glsl(
        EXTENSIONS + SHOWN + buffer(0, "x", qualifier="readonly") + buffer(1, "y") + "void main() {"
        "y[0] = x[0] + uint(factor + direction.x + wide + number + half_ + small + negative"
        " + matrix[0].x + power + pair.x + list[0]) + count + fixed_word; }",
        "1.2",
    )
    code = make_text(
        declare_buffers("read u32", "read_write u32"),
        "if (i < arrayLength(&b1)) { b1[i] = param(i + 1u); }",
    )
    return Kernel.from_spirv(
        spirv,
        push=struct.pack("<I", 99),
        out_shape=(words,),
        wgsl=WgslCode(code, struct.pack("<I", 99)),
    )


def test_members_of_spirv_follow_each_other_without_padding(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_both(len(WORDS) // 4)
    x = np.zeros(5, np.uint32)
    for _ in range(2):
        assert each_webgpu.run(kernel, x, params=VALUES).tobytes() == WORDS
    other = each_webgpu.run(kernel, x, params=VALUES | {"factor": -1.0})
    assert other.tobytes() == WORDS[:4] + struct.pack("<f", -1) + WORDS[8:]


def test_more_parameters_than_fit_are_refused(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", "read_write u32"),
        "b1[i] = param(i);",
        dtypes=["u4", "u4"],
        push_of=lambda shape: [0] * 20,
        params=[f"p{n}" for n in range(20)],
        name="wide",
    )
    with pytest.raises(KernelError, match=r"'wide' has 164 bytes of parameters; .* have 128"):
        each_webgpu.run(kernel, np.zeros(5, np.uint32), params=(0,) * 20)
