"""Layouts of storage buffers and parameters, against the rules of std430 and std140."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gpu_executor.errors import SpirvError
from gpu_executor.kernel.arguments import have_same_layout
from gpu_executor.spirv import ShaderInterface, StorageBlock, read_interface
from tests.support.glsl import assemble_spirv, compile_glsl

EXTENSIONS = """
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_buffer_reference : require
layout(local_size_x = 1) in;
"""


def read(
    body: str, options: tuple[str, ...] = (), constants: dict[int, Any] | None = None
) -> ShaderInterface:
    source = f"{EXTENSIONS}{body}\nvoid main() {{}}"
    return read_interface(compile_glsl(source, "1.2", options=options), constants)


def read_buffer(
    members: str,
    before: str = "",
    layout: str = "std430",
    constants: dict[int, Any] | None = None,
) -> StorageBlock:
    block = f"{before} layout({layout}, binding = 0) buffer Block {{ {members} }};"
    found = read(block, constants=constants)
    assert len(found.buffers) == 1
    return found.buffers[0]


def declare_blocks(blocks: Iterable[tuple[str, str]]) -> str:
    """Buffers of these members and layouts in one shader: a start of glslc takes a tenth of a
    second."""
    return "".join(
        f"layout({layout}, binding = {at}) buffer B{at} {{ {members} }} b{at};\n"
        for at, (members, layout) in enumerate(blocks)
    )


ELEMENTS = {
    "float": "f4", "double": "f8", "float16_t": "f2", "int": "i4", "uint": "u4", "int8_t": "i1",
    "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2", "int64_t": "i8", "uint64_t": "u8",
    "vec2": "2f4", "vec4": "4f4", "ivec2": "2i4", "uvec4": "4u4", "dvec2": "2f8", "u8vec4": "4u1",
    "i16vec2": "2i2", "f16vec4": "4f2", "u64vec2": "2u8",
    "vec3": "4f4", "dvec3": "4f8",  # the padding is an element
    "mat4": "(4,4)f4", "mat2": "(2,2)f4", "mat3": "(3,4)f4", "mat3x2": "(3,2)f4",
    "mat2x3": "(2,4)f4", "layout(row_major) mat2x3": "(3,2)f4", "dmat2x3": "(2,4)f8",
}  # fmt: skip


def test_padding_of_elements() -> None:
    cases = [
        ("float x[];", "std430", ""),
        ("vec4 x[];", "std430", ""),
        ("S x[];", "std430", "4+ 4- 12+ 4-"),
        ("vec3 x[];", "std430", "12+ 4-"),
        ("vec3 x[];", "scalar", ""),
        ("f16vec3 x[];", "std430", "6+ 2-"),
        ("float x[];", "std140", "4+ 12-"),
        ("mat3 x[];", "std430", "12+ 4- 12+ 4- 12+ 4-"),
        ("layout(row_major) mat2x3 x[];", "std430", ""),
        ("T x[];", "std430", "4+ 4+ 8- 12+ 4- 12+ 4-"),
        ("vec3 x;", "std430", ""),
        ("uint a; dvec2 b;", "std430", "4+ 12- 16+"),
    ]
    structs = "struct S { uint a; vec2 b; float c; }; struct T { float a[2]; vec3 b[2]; };"
    found = read(structs + declare_blocks((members, layout) for members, layout, _ in cases))
    for buffer, (members, layout, used) in zip(found.buffers, cases, strict=True):
        runs = [(int(run[:-1]), run[-1] == "+") for run in used.split()]
        expected = b"".join(bytes([number]) * count for count, number in runs)
        assert buffer.used == expected, (members, layout)


def test_elements_of_arrays() -> None:
    body = "".join(
        f"layout(binding = {3 * at + n}) buffer B{at}_{n} {{ {glsl} x{extent}; }} b{at}_{n};\n"
        for at, glsl in enumerate(ELEMENTS)
        for n, extent in enumerate(("[]", "[5]", ""))
    )
    buffers = read(body).buffers
    assert len(buffers) == 3 * len(ELEMENTS)
    for at, (glsl, text) in enumerate(ELEMENTS.items()):
        dtype = np.dtype(text)
        elements, five, single = buffers[3 * at : 3 * at + 3]
        assert (elements.element, elements.stride) == (dtype, dtype.itemsize), glsl
        assert (five.element, five.stride) == (dtype, dtype.itemsize), glsl
        # A vec3 alone ends before its padding.
        alone = {"vec3": np.dtype("3f4"), "dvec3": np.dtype("3f8")}.get(glsl, dtype)
        assert (single.element, single.stride) == (alone, alone.itemsize), glsl
        assert (elements.length, five.length, single.length) == (None, 5, 1)


def test_arrays_of_arrays_are_trailing_axes() -> None:
    found = read_buffer("float x[][3][2];")
    assert (found.element, found.stride, found.length) == (np.dtype(("f4", (3, 2))), 24, None)
    found = read_buffer("vec3 x[7][5];")
    assert (found.element, found.stride, found.length) == (np.dtype(("f4", (5, 4))), 80, 7)
    found = read_buffer("mat3 x[][2];")
    assert (found.element, found.stride) == (np.dtype(("f4", (2, 3, 4))), 96)


def test_padding_between_the_elements_of_std140_is_made_of_elements() -> None:
    found = read_buffer("float x[];", layout="std140")
    assert (found.element, found.stride) == (np.dtype(("f4", (4,))), 16)
    found = read_buffer("float x[][3];", layout="std140")
    assert (found.element, found.stride) == (np.dtype(("f4", (3, 4))), 48)


def test_scalar_layout_has_no_padding() -> None:
    found = read_buffer("vec3 x[];", layout="scalar")
    assert (found.element, found.stride) == (np.dtype(("f4", (3,))), 12)
    struct = "struct S { float a; vec3 b; };"
    found = read_buffer("S x[];", struct, "scalar")
    assert found.element == np.dtype([("a", "f4"), ("b", "f4", (3,))])


PARTICLE = "struct Particle { vec3 position; float mass; uint tags[3]; double age; };"


def test_structs_are_structured_dtypes() -> None:
    found = read_buffer("Particle p[];", PARTICLE)
    assert found.element == np.dtype(
        {
            "names": ["position", "mass", "tags", "age"],
            "formats": [("f4", (3,)), "f4", ("u4", (3,)), "f8"],
            "offsets": [0, 12, 16, 32],
            "itemsize": 48,
        }
    )
    assert (found.stride, found.length) == (48, None)
    assert found.layout == (
        "{ struct Particle { vec3 position @0; float mass @12; uint tags[3] @16 stride 4; "
        "double age @32; } p[] @0 stride 48; }"
    )


def test_nested_structs_are_nested_dtypes() -> None:
    found = read_buffer(
        "Outer x[];",
        "struct Inner { vec2 a; float b; }; struct Outer { float c; Inner d; Inner e[2]; };",
    )
    inner = np.dtype(
        {"names": ["a", "b"], "formats": [("f4", (2,)), "f4"], "offsets": [0, 8], "itemsize": 16}
    )
    assert found.element == np.dtype(
        {
            "names": ["c", "d", "e"],
            "formats": ["f4", inner, (inner, (2,))],
            "offsets": [0, 8, 24],
            "itemsize": 56,
        }
    )


def test_stripped_names_are_numbered() -> None:
    body = f"""{EXTENSIONS}{PARTICLE}
layout(binding = 0) buffer A {{ Particle p[]; }};
void main() {{ p[0].mass = 1.0; }}
"""
    found = read_interface(compile_glsl(body, "1.2", options=("-O",))).buffers[0]
    assert found.name == ""
    assert found.element is not None
    assert found.element.names == ("f0", "f1", "f2", "f3")
    assert "struct { vec3 @0; float @12; uint[3] @16 stride 4;" in found.layout


def test_a_block_of_plain_members_is_one_structure() -> None:
    found = read_buffer("uint n; vec2 x; float y[3];")
    assert found.element == np.dtype(
        {
            "names": ["n", "x", "y"],
            "formats": ["u4", ("f4", (2,)), ("f4", (3,))],
            "offsets": [0, 8, 16],
            "itemsize": 32,
        }
    )
    assert (found.stride, found.length) == (32, 1)
    found = read_buffer("Particle p;", PARTICLE)
    assert found.length == 1
    assert found.element is not None
    assert found.element.names == ("position", "mass", "tags", "age")


def test_layouts_that_no_dtype_has() -> None:
    node = "layout(buffer_reference) buffer Node { uint x; };"
    layouts = {
        "uint n; float data[];": "{ uint n @0; float data[] @4 stride 4; }",
        "layout(offset = 16) float x[];": "{ float x[] @16 stride 4; }",
        "Node n[];": "{ Node reference n[] @0 stride 8; }",
        "layout(row_major) mat2x3 m; mat3 q[2]; float x[];": (
            "{ row_major mat2x3 m @0 stride 8; mat3 q[2] @32 stride 48, 16; "
            "float x[] @128 stride 4; }"
        ),
    }
    found = read(node + declare_blocks((members, "std430") for members in layouts))
    for buffer, layout in zip(found.buffers, layouts.values(), strict=True):
        assert (buffer.element, buffer.length, buffer.layout) == (None, None, layout)


TAIL = {"names": ["y", "tail"], "formats": ["3f4", "u8"], "offsets": [0, 32], "itemsize": 40}


SIZED = [
    "float x[N];",
    "float x[2 * N + M];",
    "dvec2 x[N];",
    "uint head; float y[N];",
    "float y[N]; uint64_t tail;",
]


@pytest.mark.parametrize(
    ("members", "constants", "dtype", "length"),
    [
        ("float x[N];", {}, "f4", 8),
        ("float x[N];", {0: 3}, "f4", 3),
        ("float x[2 * N + M];", {0: 5}, "f4", 12),
        ("dvec2 x[N];", {0: np.uint8(4)}, "(2,)f8", 4),
        ("uint head; float y[N];", {0: 3}, "u4, (3,)f4", 1),
        ("float y[N]; uint64_t tail;", {0: 3}, TAIL, 1),
    ],
)
def test_lengths_that_are_specialization_constants(
    members: str, constants: dict[int, int], dtype: Any, length: int
) -> None:
    before = "layout(constant_id = 0) const uint N = 8; layout(constant_id = 1) const uint M = 2;"
    blocks = declare_blocks((each, "std430") for each in SIZED)
    found = read(before + blocks, constants=constants).buffers[SIZED.index(members)]
    assert found.element is not None
    assert have_same_layout(found.element, np.dtype(dtype))
    assert found.length == length


def test_a_specialized_array_that_reaches_into_the_next_member_is_refused() -> None:
    constant = "layout(constant_id = 0) const uint N = 4;"
    members = "float w[N]; float bias;"
    found = read_buffer(members, constant, constants={0: 5})
    assert found.element is None
    for block in ("layout(push_constant)", "layout(binding = 0)"):
        text = f"{constant} {block} uniform P {{ {members} }};"
        read(text, constants={0: 3})
        with pytest.raises(SpirvError, match=r"w at byte 0, whose \d+ bytes overlap bias at byte"):
            read(text, constants={0: 5})


def test_names_of_buffers() -> None:
    found = read("""
layout(binding = 2) buffer Weights { float w[]; } weights;
layout(binding = 9) buffer Biases { float b[]; };
""")
    assert [(each.binding, each.name) for each in found.buffers] == [(2, "weights"), (9, "Biases")]


# --- random structs against the rules of the GLSL specification, 7.6.2.2 ---


@dataclass(frozen=True)
class Rule:
    """A type, its alignment and its size by std430 or std140, and its dtype without padding."""

    glsl: str
    alignment: int
    size: int
    dtype: np.dtype[Any]


SCALARS = [
    Rule("float", 4, 4, np.dtype("f4")),
    Rule("uint", 4, 4, np.dtype("u4")),
    Rule("int16_t", 2, 2, np.dtype("i2")),
    Rule("uint8_t", 1, 1, np.dtype("u1")),
    Rule("double", 8, 8, np.dtype("f8")),
    Rule("int64_t", 8, 8, np.dtype("i8")),
]
VECTOR_NAMES = {"float": "vec", "uint": "uvec", "int16_t": "i16vec", "uint8_t": "u8vec"}
VECTOR_NAMES |= {"double": "dvec", "int64_t": "i64vec"}


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def make_vector(scalar: Rule, count: int) -> Rule:
    alignment = scalar.size * (2 if count == 2 else 4)
    dtype = np.dtype((scalar.dtype, (count,)))
    return Rule(f"{VECTOR_NAMES[scalar.glsl]}{count}", alignment, count * scalar.size, dtype)


def make_matrix(scalar: Rule, columns: int, rows: int, std140: bool) -> Rule:
    alignment = scalar.size * (2 if rows == 2 else 4)
    stride = round_up(alignment, 16) if std140 else alignment
    name = ("d" if scalar.glsl == "double" else "") + f"mat{columns}x{rows}"
    dtype = np.dtype((scalar.dtype, (columns, stride // scalar.size)))
    return Rule(name, stride, columns * stride, dtype)


def choose_member(rng: random.Random, std140: bool) -> Rule:
    scalar = rng.choice(SCALARS)
    kind = rng.randrange(4)
    if kind == 0:
        return scalar
    if kind == 1:
        return make_vector(scalar, rng.randint(2, 4))
    if kind == 2:
        floats = [each for each in SCALARS if each.glsl in ("float", "double")]
        return make_matrix(rng.choice(floats), rng.randint(2, 4), rng.randint(2, 4), std140)
    return rng.choice([scalar, make_vector(scalar, rng.randint(2, 4))])


def make_array(rule: Rule, length: int, std140: bool) -> tuple[int, int, np.dtype[Any]]:
    """The alignment, the size and the dtype of an array."""
    alignment = round_up(rule.alignment, 16) if std140 else rule.alignment
    stride = round_up(rule.size, alignment)
    base, shape = rule.dtype.subdtype or (rule.dtype, ())
    size = base.itemsize
    if len(shape) < 2:  # a scalar or a vector fills its stride with numbers
        shape = () if stride == size else (stride // size,)
    return alignment, length * stride, np.dtype((base, (length, *shape)))


def make_struct(rng: random.Random, std140: bool) -> tuple[str, np.dtype[Any]]:
    """The members of a random struct, and its dtype."""
    text, names, formats, offsets, end, largest = "", [], [], [], 0, 16 if std140 else 1
    for at in range(rng.randint(1, 6)):
        rule = choose_member(rng, std140)
        alignment, size, dtype, extent = rule.alignment, rule.size, rule.dtype, ""
        if rng.random() < 0.3:
            length = rng.randint(1, 4)
            alignment, size, dtype = make_array(rule, length, std140)
            extent = f"[{length}]"
        offset = round_up(end, alignment)
        text += f"{rule.glsl} m{at}{extent}; "
        names.append(f"m{at}")
        formats.append(dtype)
        offsets.append(offset)
        end, largest = offset + size, max(largest, alignment)
    description = {"names": names, "formats": formats, "offsets": offsets}
    dtype = np.dtype(dict(description, itemsize=round_up(end, largest)))  # type: ignore[call-overload]
    return text, dtype


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("layout", ["std430", "std140"])
def test_random_structs_have_the_layout_of_their_rules(layout: str, seed: int) -> None:
    rng = random.Random(seed)
    structs = [make_struct(rng, layout == "std140") for _ in range(40)]
    body = "".join(
        f"struct S{at} {{ {text} }};\n"
        f"layout({layout}, binding = {at}) buffer B{at} {{ S{at} x[]; }} b{at};\n"
        for at, (text, _) in enumerate(structs)
    )
    found = read(body)
    for buffer, (text, dtype) in zip(found.buffers, structs, strict=True):
        assert buffer.element == dtype, text
        assert buffer.stride == dtype.itemsize


@pytest.mark.parametrize(
    ("length", "constants", "expected"),
    [
        ("Select %uint (SLessThan %bool %a %b) %3 %5", {0: 0xFFFFFFFF, 1: 1}, 3),
        ("Select %uint (ULessThan %bool %a %b) %3 %5", {0: 0xFFFFFFFF, 1: 1}, 5),
        ("BitwiseAnd %uint (SDiv %uint %a %2) %7", {0: 0xFFFFFFF9}, 5),
        ("BitwiseAnd %uint (UDiv %uint %a %2) %7", {0: 0xFFFFFFF9}, 4),
        ("BitwiseAnd %uint (ShiftRightArithmetic %uint %a %2) %7", {0: 0x80000000}, None),
        ("BitwiseAnd %uint (ShiftRightArithmetic %uint %a %31) %7", {0: 0x80000000}, 7),
        ("BitwiseAnd %uint (ShiftRightLogical %uint %a %31) %7", {0: 0x80000000}, 1),
        ("Select %uint (IEqual %bool %a %i) %3 %5", {0: 0xFFFFFFFF, 2: -1}, 3),
    ],
)
def test_the_operation_decides_the_sign_of_its_operands(
    length: str, constants: dict[int, int], expected: int | None
) -> None:
    """Values as the SPIR-V specification defines them; a length of 0 is none."""
    outer, _, inner = length.partition("(")
    inner, _, rest = inner.partition(")")
    text = f"""
OpCapability Shader
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main"
OpExecutionMode %main LocalSize 1 1 1
OpDecorate %a SpecId 0
OpDecorate %b SpecId 1
OpDecorate %i SpecId 2
OpDecorate %array ArrayStride 4
OpDecorate %block Block
OpMemberDecorate %block 0 Offset 0
OpDecorate %buffer DescriptorSet 0
OpDecorate %buffer Binding 0
%void = OpTypeVoid
%function = OpTypeFunction %void
%bool = OpTypeBool
%uint = OpTypeInt 32 0
%int = OpTypeInt 32 1
%a = OpSpecConstant %uint 8
%b = OpSpecConstant %uint 1
%i = OpSpecConstant %int 1
%2 = OpConstant %uint 2
%3 = OpConstant %uint 3
%5 = OpConstant %uint 5
%7 = OpConstant %uint 7
%31 = OpConstant %uint 31
%inner = OpSpecConstantOp {inner.split()[1]} {inner.split()[0]} {" ".join(inner.split()[2:])}
%length = OpSpecConstantOp %uint {outer.split()[0]} %inner {rest}
%array = OpTypeArray %uint %length
%block = OpTypeStruct %array
%pointer = OpTypePointer StorageBuffer %block
%buffer = OpVariable %pointer StorageBuffer
%main = OpFunction %void None %function
%label = OpLabel
OpReturn
OpFunctionEnd
"""
    found = read_interface(assemble_spirv(text), constants).buffers[0]
    assert found.length == expected
