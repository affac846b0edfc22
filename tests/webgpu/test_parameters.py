"""Parameters of calls on WebGPU: the words that `param` returns."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.kernel.wgsl import WgslCode
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
    buffers="in f4, out f4",
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


def test_calls_of_a_repeated_size_follow_their_parameters(each_webgpu: gx.WgpuExecutor) -> None:
    x = X[:123]  # a size that no other test repeats
    for factor, offset in [(2, 1)] * 4 + [(3, 1), (3, 2), (2, 1), (2, 1)]:
        found = each_webgpu.run(AFFINE, x, params=(factor, offset))
        np.testing.assert_array_equal(found, factor * x + offset)
    # A batch of one job uses the same buffers.
    (found,) = each_webgpu.run_batch(AFFINE, [(x,)], params=(5, 0))
    np.testing.assert_array_equal(found, 5 * x)
    for _ in range(2):
        found = each_webgpu.run(AFFINE, x, params=(2, 1))
        np.testing.assert_array_equal(found, 2 * x + 1)


@pytest.mark.parametrize("factor", [2, 2.0, np.float32(2), np.float64(2), np.int64(2)])
def test_a_word_has_the_type_that_the_text_reads(
    each_webgpu: gx.WgpuExecutor, factor: float
) -> None:
    np.testing.assert_array_equal(each_webgpu.run(AFFINE, X, params=(factor, -3)), 2 * X - 3)
    for value in (1.0, np.float32(1), 1 << 31, "1", None, True, np.True_):
        with pytest.raises(
            ArgumentTypeError, match=r"'offset' \(int32\): found .*; give an int in"
        ):
            each_webgpu.run(AFFINE, X, params=(factor, value))


NAMED = make_element_kernel(
    declare_buffers("read f32", "read_write f32"),
    "let n = param(1u); let f = param(2u); b1[i] = b0[i] + f32(n) + bitcast<f32>(f);",
    buffers="in f4, out f4",
    params=["n", "f"],
    name="named",
)


def test_values_are_converted_to_the_type_of_a_name_or_refused(
    each_webgpu: gx.WgpuExecutor,
) -> None:
    for n, f in ((2, 0.5), (2, 1), (np.uint8(2), np.float16(0.5)), (np.array(2), np.array(1))):
        result = each_webgpu.run(NAMED, X, params={"n": n, "f": f})
        np.testing.assert_array_equal(result, X + 2 + np.float32(f))
    words = r"named: parameter 'n' .*found float 2.0; .* a float as bitcast<f32>\(param\(1u\)\)"
    with pytest.raises(ArgumentTypeError, match=words):
        each_webgpu.run(NAMED, X, params={"n": 2.0, "f": 0.5})
    with pytest.raises(ArgumentTypeError, match=r"found int -1; .* bitcast<i32>\(param\(1u\)\)"):
        each_webgpu.run(NAMED, X, params=(-1, 0.5))
    for given in ((True, 0.5), (2, True)):
        with pytest.raises(ArgumentTypeError, match=r"found bool True; .* \(1 for True\)"):
            each_webgpu.run(NAMED, X, params=given)


ODD_READINGS = {
    # the text shows a float
    "b1[i] = bitcast< f32 >((param( 0x1 ))) * b0[i];": "shown",
    "const K: u32 = 1u; b1[i] = bitcast<f32>(param(K)) * b0[i];": "shown",
    "var f: u32 = param(1u); let g = u32(f); b1[i] = bitcast<f32>(g) * b0[i];": "shown",
    "b1[i] = bitcast<f32>(bitcast<i32>(param(1u))) * b0[i];": "shown",
    "/* /* */ _ = param(1u) + 1u; */ b1[i] = bitcast/*<*/<f32>(param(1u)) * b0[i];": "shown",
    "// \u2028 b1[i] = bitcast<f32>(param(1u)) * b0[i];": "shown",
    "let f = 0u; { let f = param(1u); b1[i] = bitcast<f32>(f) * b0[i]; } b1[0] += f32(f);": "shown",
    # the type must be declared
    "b1[i] = bitcast<F>(param(1u)) * b0[i];": "declared",
    "let a = array(param(1u), 0u); b1[i] = bitcast<f32>(a[0]) * b0[i];": "declared",
    "var a: array<u32, 2>; a[1] = param(1u); b1[i] = bitcast<f32>(a[1]) * b0[i];": "declared",
    "let s = S(param(1u)); b1[i] = bitcast<f32>(s.word) * b0[i];": "declared",
    "var s: S; s.word = param(1u); b1[i] = bitcast<f32>(s.word) * b0[i];": "declared",
    "var f = param(1u); let p = &f; b1[i] = bitcast<f32>(*p) * b0[i];": "declared",
    "var f = 0u; let p = &f; *p = param(1u); b1[i] = bitcast<f32>(f) * b0[i];": "declared",
    "kept = param(1u); b1[i] = bitcast<f32>(kept) * b0[i];": "declared",
    "b1[i] = scale(param(1u), b0[i]);": "declared",
    "b1[i] = bitcast<f32>(read_word(1u)) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(min(param(1u))) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(param(1u) | 0u) * b0[i];": "declared",
    "let f = 0u + param(1u) * 1u; b1[i] = bitcast<f32>(f) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(max(param(1u), 0u)) * b0[i];": "declared",
    "b1[i] = bitcast<f32>((param(1u) >> 1u) << 1u) * b0[i];": "declared",
    "b1[i] = exp2(f32(param(1u) / 8388608u) - 127.0) * b0[i];": "declared",
    "b1[i] = ldexp(1.0, i32(extractBits(param(1u), 23u, 8u)) - 127) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(param(i - i + 1u)) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(param(place)) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(params.words[0].y) * b0[i];": "declared",
    "b1[i] = bitcast<vec2<f32>>(vec2(param(1u), 0u)).x * b0[i];": "declared",
    "let v = vec2u(param(1u)); b1[i] = bitcast<f32>(v.y) * b0[i];": "declared",
    "b1[i] = bitcast<f32>(select(0u, param(1u), i >= 0u)) * b0[i];": "declared",
    "var f: u32; if (i >= 0u) { f = param(1u); } b1[i] = bitcast<f32>(f) * b0[i];": "declared",
    "var f = param(1u); f ^= 0u; b1[i] = bitcast<f32>(f) * b0[i];": "declared",
    "for (var f = param(1u); f != 0u; f = 0u) { b1[i] = bitcast<f32>(f) * b0[i]; }": "declared",
    "let f = param(1u); { let f = f; b1[i] = bitcast<f32>(f) * b0[i]; }": "declared",
    "let f\u00b7 = param(1u); b1[i] = bitcast<f32>(f\u00b7) * b0[i];": "declared",
    "b1[i] = select(0.0, 2 * b0[i], param(1u) == 0x40000000u);": "declared",
    "switch param(1u) { case 0x40000000u { b1[i] = 2 * b0[i]; } default {} }": "declared",
    "let t = bitcast<u32>(1.5); b1[i] = select(0.0, 2 * b0[i], param(1u) > t);": "declared",
    "b1[i] = select(b0[i], bitcast<f32>(param(1u)) * b0[i], param(1u) > 0u);": "declared",
}  # fmt: skip
ODD_NAMES = """
alias F = f32;
struct S { word: u32 }
override place: u32 = 1u;
var<private> kept: u32;
fn scale(by: u32, x: f32) -> f32 { return bitcast<f32>(by) * x; }
"""
READ = "fn read_word(word: u32) -> u32 { return param(word); }"
MIN = "fn min(word: u32) -> u32 { return word; }"


@pytest.fixture(scope="module")
def webgpu() -> Iterator[gx.WgpuExecutor]:
    with gx.WgpuExecutor(settings=gx.Settings()) as executor:
        yield executor


@pytest.mark.parametrize("body", ODD_READINGS)
def test_a_float_is_multiplied_however_the_text_reads_it(
    webgpu: gx.WgpuExecutor, body: str
) -> None:
    """The type is shown by the text or has to be declared; it is never guessed."""
    functions = [READ] * ("read_word(" in body) + [MIN] * ("min(" in body)

    def make(**options: Any) -> Kernel:
        return make_element_kernel(
            "\n".join([declare_buffers("read f32", "read_write f32"), ODD_NAMES, *functions]),
            body + "\n",
            buffers="in f4, out f4",
            **{"params": ["factor"], **options},
        )

    kernels = [make(params={"factor": "f32"})]
    if ODD_READINGS[body] == "shown":
        kernels.append(make())
    else:
        with pytest.raises(KernelError, match=r"'factor' is param\(1u\), .* declare its type: par"):
            make()
    for kernel in kernels:
        for factor in (2, 2.0, np.float32(2), np.array(2)):
            result = webgpu.run(kernel, X, params={"factor": factor})
            np.testing.assert_array_equal(result, 2 * X)


@pytest.mark.parametrize("dtype", ["u4", "f4"])
def test_a_word_that_is_stored_has_the_type_of_the_output(
    webgpu: gx.WgpuExecutor, dtype: str
) -> None:
    def make(**options: Any) -> Kernel:
        return make_element_kernel(
            declare_buffers("read f32", "read_write u32"),
            "b1[i] = param(1u);",
            buffers=["in f4", ("out", dtype)],
            **{"params": ["value"], **options},
        )

    if dtype == "f4":  # the array keeps the bits, and the caller reads floats
        with pytest.raises(KernelError, match=r"'value' is param.* cannot be followed \(line"):
            make()
    kernel = make() if dtype == "u4" else make(params={"value": "f32"})
    np.testing.assert_array_equal(webgpu.run(kernel, X, params=(2,)), np.full(len(X), 2, dtype))


def test_declared_integers_take_the_values_of_their_type(webgpu: gx.WgpuExecutor) -> None:
    x = np.arange(100, dtype=np.uint32)
    for type_, least, most in (("i32", -(1 << 31), (1 << 31) - 1), ("u32", 0, (1 << 32) - 1)):
        kernel = make_element_kernel(
            declare_buffers("read u32", "read_write u32"),
            "b1[i] = b0[i] + (param(1u) & 0xffffffffu);",
            buffers="in u4, out u4",
            params={"step": type_},
        )
        for value in (least, most, np.int64(most), np.array(least)):
            result = webgpu.run(kernel, x, params=(value,))
            np.testing.assert_array_equal(result, ((x.astype(object) + int(value)) % 2**32))
        for wrong in (least - 1, most + 1, np.int64(most + 1), 1.0, np.float32(1), True, "1", None):
            with pytest.raises(ArgumentTypeError, match=r"'step' .*found .*; give an int in"):
                webgpu.run(kernel, x, params=(wrong,))


@pytest.mark.parametrize("params", [["a", "a"], "ab", ["a", ""], [1], {1: "f32"}, 5])
def test_names_of_parameters_differ_and_are_a_list(params: Any) -> None:
    with pytest.raises(KernelError, match=r"'k': params (is|has the name 'a' twice)"):
        Kernel.from_wgsl("", buffers="in u4, out u4", name="k", params=params)


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


def test_parameters_follow_the_words_of_push(each_webgpu: gx.WgpuExecutor) -> None:
    kernel = make_whole_kernel(
        declare_buffers("read u32", "read_write u32"),
        "if (i < arrayLength(&b1)) { b1[i] = param(i); }",
        buffers="in u4, out u4",
        push=(struct.pack("<2I", 11, 12), lambda shape: [shape[0], 13]),
        params={"first": "u32", "second": "u32"},
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
        buffers="in u4, out u4",
        push=lambda shape: [0] * 20,
        params={f"p{n}": "u32" for n in range(20)},
        name="wide",
    )
    with pytest.raises(KernelError, match=r"'wide' has 164 bytes of parameters; .* have 128"):
        each_webgpu.run(kernel, np.zeros(5, np.uint32), params=(0,) * 20)
