"""Types of WGSL parameters: what a text shows, what has to be declared, what contradicts."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.kernel import Kernel
from tests.support.glsl import compile_glsl
from tests.support.webgpu import declare_buffers, make_element_kernel, make_text, make_whole_kernel

INTEGERS = declare_buffers("read u32", "read_write u32")


def declare(body: str, *types: str, **options: Any) -> Kernel:
    """Make a kernel of integers with one parameter, and declare its type if one is given."""
    if types:
        options["params"] = {"word": types[0]}
    options.setdefault("params", ["word"])
    return make_whole_kernel(INTEGERS, body, buffers="in u4, out u4", name="k", **options)


def encode(kernel: Kernel, value: Any, words: bytes = b"") -> bytes:
    return kernel.make_parameters(words).encode((value,)).push


FLOAT, SIGNED = struct.pack("<f", 2.0), struct.pack("<i", -2)
SHOWN = {
    # a count, an index, a factor, a divisor
    "if (i < param(1u)) { b1[i] = b0[i]; }": "u32",
    "if i < param(1u) && i > 2u { b1[i] = b0[i]; }": "u32",
    "for (var n = 0u; n < param(1u); n++) { b1[i] += b0[i + n]; }": "u32",
    "var n = param(1u); while (n > 0u) { b1[i] += n; n--; }": "u32",
    "b1[i] = b0[i] * param(1u);": "u32",
    "b1[i] *= param(1u); b1[i] = b1[i] + b0[i];": "u32",
    "b1[i] = b0[param(1u) * i + 2u];": "u32",
    "b1[i] = select(b0[i], 0u, b0[i] == param(1u));": "u32",
    "let n = param(1u); b1[i] = b0[i % n] + i / n;": "u32",
    "let n = param(1u) | 0u; if (i < n) { b1[i] = b0[i]; }": "u32",
    "let j = min(i, param(1u)); b1[i] = b0[j];": "u32",
    "var j = i; loop { if (j >= arrayLength(&b1)) { break; } b1[j] = 1u; j += param(1u); }": "u32",
    "switch (param(1u)) { case 0u: { b1[i] = 1u; } default: { b1[i] = b0[i]; } }": "u32",
    "b1[i] = u32(f32(b0[i]) * f32(param(1u)));": "u32",
    "const K = 1u; b1[i] = b0[i] + param(K); // bitcast<f32>(param(1u))": "u32",
    "let max = param(1u); if (i < max) { b1[i] = 0u; }": "u32",
    # signed
    "b1[i] = u32(i32(b0[i]) + i32(param(1u)));": "i32",
    "let n = bitcast<i32>(param(1u)); for (var k = 0; k < n; k++) { b1[i] = u32(k); }": "i32",
    "b1[i] = u32(f32(bitcast<i32>(param(1u))) + 5.0) + param(1u);": "i32",
    # both
    "b1[i] = u32(f32(i32(param(1u)))); if (i < param(1u)) { b1[i] = 0u; }": "i32 and u32",
    # floats
    "b1[i] = u32(bitcast<f32>(param(1u)));": "f32",
    "var f = param(1u); let g = (f); b1[i] = u32(bitcast<f32>(u32(g)) * s.f + 1.f);": "f32",
}


@pytest.mark.parametrize("body", SHOWN)
def test_a_text_that_is_followed_shows_the_type(body: str) -> None:
    kernel, type_ = declare(body), SHOWN[body]
    if type_ == "f32":
        assert encode(kernel, 2) == encode(kernel, 2.0) == FLOAT
        return
    assert encode(kernel, 2) == encode(kernel, np.uint8(2)) == struct.pack("<i", 2)
    with pytest.raises(
        ArgumentTypeError, match=r"'word' .*found float 2.0; give an int .*bitcast<"
    ):
        encode(kernel, 2.0)
    with pytest.raises(ArgumentTypeError, match="found bool True"):
        encode(kernel, True)
    fits = {"i32": (-2,), "u32": (1 << 31,), "i32 and u32": ()}[type_]
    for value in (-2, 1 << 31):
        if value in fits:
            assert encode(kernel, value) == struct.pack("<q", value)[:4]
        else:
            with pytest.raises(ArgumentTypeError, match=r"'word'.*(found int|is not both)"):
                encode(kernel, value)


NOT_FOLLOWED = [
    "b1[i] = param(1u) >> 1u;",
    "b1[i] = (param(1u) + 3u) / 4u;",
    "b1[i] = b0[i] * param(1u) % 5u;",
    "b1[i] = b0[i] & param(1u);",
    "b1[i] = countOneBits(param(1u));",
    "b1[i] = b0[i] + param(1u) - 0x3f800000u;",
    "b1[i] = u32(bool(param(1u)));",
    "let n = vec2(param(1u), 0u); if (all(n > vec2(i))) { b1[i] = 0u; }",
    "atomicAdd(&total, param(1u));",
    "let p = param; b1[i] = 0u;",
    "_ = param(1u);",
    "b1[i] = b0[param(i)];",
    "b1[i] = b0[i] + param(1u); let f = bitcast<f32>(b1[i]);",
    "b1[i] = b0[i] + param(1u); let p = &b1;",
    "b1[i] = param(1u) + bitcast<u32>(1.5);",
    "if (param(1u) > pack2x16float(vec2f(1.0))) { b1[i] = 0u; }",
    "let n = param(1u); if (n > 0u) { let n = 2u; b1[i] = n; }",
    "var a: array<u32, (1 << 2)>; b1[i] = param(1u);",
    "b1[i] = param(1u) }",
    "b1[i] = b0[i];",  # never reads it
]


@pytest.mark.parametrize("body", NOT_FOLLOWED)
def test_a_text_that_is_not_followed_needs_a_declaration(body: str) -> None:
    words = r"kernel 'k': parameter 'word' is param\(1u\), .* params=\{'word': 'f32'\}, or 'i32'"
    with pytest.raises(KernelError, match=words):
        declare(body)
    assert encode(declare(body, "f32"), 2) == FLOAT
    assert encode(declare(body, "i32"), -2) == SIGNED
    assert encode(declare(body, "u32"), 1 << 31) == struct.pack("<I", 1 << 31)


def test_a_message_quotes_the_use_and_its_line() -> None:
    with pytest.raises(KernelError, match=r"\(line 11: let f = bitcast<F>\( ?param\(1u\) \)\)"):
        declare("let n = 0u; let f = bitcast<F>(\n param(1u) );")
    with pytest.raises(KernelError, match=r"never reads; declare"):
        declare("// b1[i] = param(1u);")


@pytest.mark.parametrize(
    ("body", "type_", "words"),
    [
        ("b1[i] = u32(bitcast<f32>(param(1u)));", "u32", r"reads its word as an f32 \(line 10: b1"),
        ("let f = param(1u); b1[i] = u32(bitcast<f32>(f));", "i32", "reads its word as an f32"),
        ("if (i < param(1u)) { b1[i] = 0u; }", "f32", "reads its word as a u32"),
        ("b1[i] = b0[i] * param(1u);", "f32", "reads its word as an integer"),
        ("b1[i] = u32(f32(param(1u)));", "i32", "reads its word as a u32"),
        ("b1[i] = u32(f32(bitcast<i32>(param(1u))));", "u32", "reads its word as an i32"),
    ],
)
def test_a_declaration_that_the_text_contradicts_is_refused(
    body: str, type_: str, words: str
) -> None:
    with pytest.raises(KernelError, match=f"'word' is '{type_}' in params, .* {words}"):
        declare(body, type_)


def test_a_declaration_may_choose_among_the_types_that_a_text_reads() -> None:
    both = "b1[i] = u32(f32(i32(param(1u)))); if (i < param(1u)) { b1[i] = 0u; }"
    assert encode(declare(both, "i32"), -2) == SIGNED
    assert encode(declare(both, "u32"), 1 << 31) == struct.pack("<I", 1 << 31)
    assert encode(declare("b1[i] = b0[i] + param(1u);", "i32"), -2) == SIGNED
    tested = "if (param(1u) != 0u) { b1[i] = u32(bitcast<f32>(param(1u))); }"
    with pytest.raises(KernelError, match=r"as an integer \(.*\) and as an f32 \(.*; declare"):
        declare(tested)
    assert encode(declare(tested, "f32"), 2) == FLOAT
    assert encode(declare(tested, "u32"), 2) == struct.pack("<I", 2)


@pytest.mark.parametrize(
    ("types", "words"),
    [
        ({"word": "float"}, "has 'float' for 'word'; a type is 'f32', 'i32' or 'u32'"),
        ({"word": np.float32}, "a type is 'f32', 'i32' or 'u32'"),
        ({"word": ["f32"]}, "a type is 'f32', 'i32' or 'u32'"),
        (
            {"word": 2.5},
            "has 2.5 for 'word'; a type is .* where the text shows it. A call gives the",
        ),
        ("f32", "it must be a list of the parameters' names, .*, or a dict of their types"),
    ],
)
def test_types_are_declared_by_name(types: Any, words: str) -> None:
    with pytest.raises(KernelError, match=f"kernel 'k': params .*{words}"):
        declare("b1[i] = param(1u);", params=types)


def test_a_declaration_may_leave_some_types_to_the_text() -> None:
    body = "b1[i] = (param(1u) >> 1u) + u32(bitcast<f32>(param(2u)));"
    kernel = declare(body, params={"mask": "u32", "factor": None})
    assert kernel.make_parameters(b"").encode((5, 2)).push == struct.pack("<I", 5) + FLOAT
    with pytest.raises(
        KernelError, match=r"'mask' is .*; declare its type: params=\{'mask': 'f32'"
    ):
        declare(body, params={"mask": None, "factor": None})


def test_floats_that_a_text_reads_as_integers_hide_the_type() -> None:
    body = "b1[i] = select(0u, 1u, b0[i] < param(1u));"
    for dtypes, shown in ((("u4", "u4"), True), (("f4", "u4"), False), (("u4", "f4"), False)):
        buffers = "in {}, out {}".format(*dtypes)
        options: dict[str, Any] = {"buffers": buffers, "params": ["word"]}
        if shown:
            make_whole_kernel(INTEGERS, body, **options)
            continue
        with pytest.raises(KernelError, match="bits of floats may be integers: those of argument"):
            make_whole_kernel(INTEGERS, body, **options)
    struct_ = "struct P { x: f32, n: u32 }\n" + INTEGERS.replace("array<u32>", "array<P>", 1)
    particle = np.dtype([("x", "f4"), ("n", "u4")])
    body = "b1[i] = select(0u, 1u, b0[i].n < param(1u));"
    make_whole_kernel(struct_, body, buffers=[("in", particle), "out u4"], params=["word"])


def test_declared_types_are_part_of_a_kernel() -> None:
    body = "b1[i] = param(1u) >> 1u;"
    kernels = [declare(body, type_) for type_ in ("f32", "i32", "u32")]
    assert len(set(kernels)) == 3 and kernels[0] == declare(body, "f32")
    loaded = pickle.loads(pickle.dumps(kernels[0]))
    assert loaded == kernels[0] and hash(loaded) == hash(kernels[0])
    assert encode(loaded, 2) == FLOAT
    one = declare("b1[i] = param(1u) >> param(2u);", params={"b": "i32", "a": "f32"})
    other = declare("b1[i] = param(1u) >> param(2u);", params={"a": "f32", "b": "i32"})
    assert one != other  # the words are in the order of the names


def test_words_follow_those_of_push() -> None:
    body = "b1[i] = param(1u) >> 1u; b1[i] = u32(bitcast<f32>(param(4u))); if (i < param(5u)) {}"
    data, names = struct.pack("<I", 7), ["factor", "count"]
    kernel = declare(body, params=names, push=(data, lambda *shapes: [1, 2]))
    found = kernel.make_parameters(bytes(8)).encode((2, 3)).push
    assert found == FLOAT + struct.pack("<I", 3)
    with pytest.raises(KernelError, match=r"'factor' is param\(2u\), which the text never reads"):
        kernel.make_parameters(b"")
    with pytest.raises(KernelError, match=r"'factor' is param\(2u\), which the text never reads"):
        declare(body, params=names, push=data)


GLSL = """
layout(local_size_x_id = 0) in;
layout(push_constant) uniform P { uint count; TYPE word; };
layout(binding = 0) readonly buffer X { uint x[]; };
layout(binding = 1) writeonly buffer Y { uint y[]; };
void main() { y[gl_GlobalInvocationID.x] = uint(word); }
"""


@pytest.mark.parametrize(
    ("type_", "body", "words"),
    [
        ("float", "b1[i] = u32(bitcast<f32>(param(1u)));", ""),
        ("float", "b1[i] = read_word(param(1u));", ""),
        ("float", "b1[i] = b0[i] + param(1u);", r"\(float32\) .* is param\(1u\) .* as an integer"),
        ("float", "b1[i] = u32(f32(param(1u)));", "reads it as a u32"),
        ("int", "b1[i] = u32(i32(param(1u)));", ""),
        ("int", "b1[i] = b0[i] + param(1u);", ""),
        ("int", "b1[i] = u32(f32(param(1u)));", r"\(int32\) of the SPIR-V .* reads it as a u32"),
        ("uint", "b1[i] = u32(i32(param(1u)));", ""),
        ("uint", "b1[i] = param(1u) >> 2u;", ""),
        ("uint", "b1[i] = u32(bitcast<f32>(param(1u)));", r"\(uint32\) .* reads it as an f32"),
        ("uvec2", "b1[i] = u32(bitcast<f32>(param(2u)));", r"is param\(2u\) .* reads it as an f32"),
        ("vec2", "b1[i] = u32(bitcast<f32>(param(2u)));", ""),
    ],
)
def test_the_types_of_spirv_hold_for_a_text_beside_it(type_: str, body: str, words: str) -> None:
    glsl = GLSL.replace("(word)", "(word.x)") if "vec" in type_ else GLSL
    code = compile_glsl(glsl.replace("TYPE", type_))
    text = make_text(INTEGERS, body)
    if words:
        with pytest.raises(KernelError, match=f"kernel 'both': parameter .*{words}"):
            Kernel.from_spirv(code, wgsl=text, name="both")
        return
    kernel = Kernel.from_spirv(code, wgsl=text, name="both")
    value = (2, 2) if "vec" in type_ else 2
    packed = struct.pack("<f" if type_ in ("float", "vec2") else "<i", 2)
    assert encode(kernel, value)[-4:] == packed


def test_declared_types_of_a_kernel_beside_spirv_are_those_of_the_spirv() -> None:
    code = compile_glsl(GLSL.replace("TYPE", "float"))
    body = "b1[i] = read_word(param(1u));"
    kernel = Kernel.from_spirv(code, wgsl=declare(body, "f32", work_group=None), name="both")
    assert encode(kernel, 2) == FLOAT
    with pytest.raises(KernelError, match="of the SPIR-V is 'u32' in the params of its WGSL"):
        Kernel.from_spirv(code, wgsl=declare(body, "u32"), name="both")


def test_words_behind_a_function_of_push_are_checked_by_a_call() -> None:
    code = compile_glsl(GLSL.replace("TYPE word", "uint shape; float word"))
    text = make_text(INTEGERS, "b1[i] = param(1u) + param(2u);")
    kernel = Kernel.from_spirv(code, wgsl=text, name="both", push=lambda *shapes: [1])
    with pytest.raises(KernelError, match=r"is param\(2u\) in the WGSL, which reads it as an int"):
        kernel.make_parameters(bytes(4))


def test_kernels_of_elements_take_types_too() -> None:
    kernel = make_element_kernel(
        INTEGERS, "b1[i] = param(1u) ^ b0[i];", buffers="in u4, out u4", params={"word": "u32"},
    )  # fmt: skip
    assert encode(kernel, 5) == struct.pack("<I", 5)
