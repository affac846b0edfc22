"""The SPIR-V reader on modules from glslc, hand-assembled modules and damaged modules."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_executor.errors import SpirvError
from gpu_executor.spirv import (
    BlockMember,
    LocalSize,
    ShaderInterface,
    SpecConstant,
    StorageBlock,
    read_interface,
)
from tests.support.glsl import compile_glsl

NONE = (None, None, None)
VERSIONS = {"1.0": (1, 0), "1.1": (1, 3), "1.2": (1, 5), "1.3": (1, 6)}  # Vulkan: SPIR-V


# A tiny assembler: an instruction is (opcode, *operands), a module is a list of instructions.

Instruction = tuple[int, ...]


def name_words(name: bytes) -> Instruction:
    padded = name + bytes(4 - len(name) % 4)
    return struct.unpack(f"<{len(padded) // 4}I", padded)


def assemble(*instructions: Instruction, version: int = 0x10300, bound: int = 100) -> bytes:
    words = [0x07230203, version, 0, bound, 0]
    for opcode, *operands in instructions:
        words += [(len(operands) + 1) << 16 | opcode, *operands]
    return struct.pack(f"<{len(words)}I", *words)


CAPABILITY = (17, 1)
ENTRY = (15, 5, 1, *name_words(b"main"))
SIZE = (16, 1, 17, 8, 4, 2)
FUNCTION = ((54, 2, 1, 0, 3), (248, 4), (253,), (56,))
# %10 = uint, %11 = a struct of two uints, %12 = pointer to it, %13 = a variable of it.
BUFFER = ((71, 13, 33, 7), (71, 13, 34, 0), (21, 10, 32, 0), (30, 11, 10, 10))
BUFFER_VARIABLE = ((32, 12, 12, 11), (59, 12, 13, 12))
# A WorkgroupSize %24 of spec constants 5 (default 16) and 6 (default 2), and the plain 1.
WORKGROUP: tuple[Instruction, ...] = (
    (71, 24, 11, 25), (71, 20, 1, 5), (71, 22, 1, 6), (21, 10, 32, 0), (23, 23, 10, 3),
    (50, 10, 20, 16), (50, 10, 22, 2), (43, 10, 21, 1), (51, 23, 24, 20, 21, 22),
)  # fmt: skip


def kernel(*extra: Instruction, size: tuple[Instruction, ...] = (SIZE,)) -> bytes:
    return assemble(CAPABILITY, ENTRY, *size, *extra, *FUNCTION)


def code_kernel(*code: Instruction) -> bytes:
    """A kernel with `code` in the only block of its main function."""
    return assemble(CAPABILITY, ENTRY, SIZE, *FUNCTION[:2], *code, *FUNCTION[2:])


VALID = kernel(*WORKGROUP, *BUFFER[:2], *BUFFER[3:], *BUFFER_VARIABLE)


def push_kernel(*types: Instruction) -> bytes:
    """A kernel whose push-constant block is %50 of `types`."""
    return kernel(*types, (32, 51, 9, 50), (59, 51, 52, 9))


FLOATS: tuple[Instruction, ...] = ((72, 50, 0, 35, 0), (22, 10, 32), (21, 13, 32, 0))
ARRAY: tuple[Instruction, ...] = ((43, 13, 14, 3), (23, 11, 10, 2), (28, 12, 11, 14))  # vec2[3]


def matrix(stride: int, columns: int) -> tuple[Instruction, ...]:
    """%12: a matrix of columns of two floats, for member 0 of %50."""
    return ((72, 50, 0, 7, stride), (23, 11, 10, 2), (24, 12, 11, columns))


FULL = """
layout(constant_id = 3) const bool flag = true;
layout(constant_id = 1) const int shift = -5;
layout(constant_id = 2) const float scale = 0.25;
layout(local_size_x_id = 0, local_size_y = 4) in;
layout(set = 0, binding = 4) readonly buffer In { uint n; uint a[]; };
layout(set = 0, binding = 0) writeonly buffer Out { uint b[]; };
layout(set = 0, binding = 2) readonly buffer A1 { uint c[]; };
layout(set = 0, binding = 2) buffer A2 { uvec4 d[]; };
layout(push_constant) uniform Push { uint count; uint moduli[26]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    d[i].x = a[i] + c[i] + count + moduli[i] + uint(shift) + uint(scale) + uint(flag);
    b[i] = gl_WorkGroupSize.x;
}
"""


@pytest.mark.parametrize("vulkan", VERSIONS)
def test_a_compiled_kernel_in_every_spirv_version(vulkan: str) -> None:
    found = read_interface(compile_glsl(FULL, vulkan))
    assert found == ShaderInterface(
        version=VERSIONS[vulkan],
        entry_point="main",
        local_size=LocalSize((1, 4, 1), (0, None, None), by_id=vulkan == "1.3"),
        bindings=(0, 2, 4),
        read_only=frozenset({4}),
        push_constant_bytes=108,
        constants=(
            SpecConstant(0, "uint", 32, 1),
            SpecConstant(1, "int", 32, -5),
            SpecConstant(2, "float", 32, 0.25),
            SpecConstant(3, "bool", 32, True),
        ),
        capabilities=frozenset({1}),
        buffers=(
            StorageBlock(
                0, "Out", "out", True, False, np.dtype("u4"), 4, None, "{ uint b[] @0 stride 4; }"
            ),
            StorageBlock(
                2, "A2", "inout", True, False, None, 4, None,
                "{ uvec4 d[] @0 stride 16; } or { uint c[] @0 stride 4; }",
            ),
            StorageBlock(
                4, "In", "in", False, False, None, 4, None,
                "{ uint n @0; uint a[] @4 stride 4; }",
            ),
        ),
        push_members=(
            BlockMember("count", 0, np.dtype("u4"), (), ()),
            BlockMember("moduli", 4, np.dtype("u4"), (26,), (4,)),
        ),
        depends_on_group=True,
    )  # fmt: skip
    assert found.constant(1) == SpecConstant(1, "int", 32, -5)
    assert found.constant(9) is None
    assert found.capability_names() == ("Shader",)


def test_wide_and_narrow_spec_constants() -> None:
    found = read_interface(
        compile_glsl("""
#extension GL_EXT_shader_explicit_arithmetic_types : require
layout(local_size_x = 32) in;
layout(constant_id = 0) const uint64_t a = 0xffffffff00000001ul;
layout(constant_id = 1) const int64_t b = -2l;
layout(constant_id = 2) const double c = 0.1lf;
layout(constant_id = 3) const int16_t d = -3s;
layout(constant_id = 4) const uint8_t e = uint8_t(200);
layout(constant_id = 5) const float16_t f = 1.5hf;
layout(set = 0, binding = 0) buffer Out { double o; };
void main() { o = double(a) + double(b) + c + double(d) + double(e) + double(f); }
""")
    )
    assert [(c.kind, c.bits, c.default) for c in found.constants] == [
        ("uint", 64, 0xFFFFFFFF00000001),
        ("int", 64, -2),
        ("float", 64, 0.1),
        ("int", 16, -3),
        ("uint", 8, 200),
        ("float", 16, 1.5),
    ]
    assert found.local_size == LocalSize((32, 1, 1), NONE)
    assert {"Float64", "Int64", "Int16", "Int8", "Float16"} <= set(found.capability_names())


@pytest.mark.parametrize(
    ("members", "size"),
    [
        ("float a; vec3 b;", 28),
        ("mat4 a; uint b;", 68),
        ("mat3x2 a;", 24),
        ("layout(row_major) mat3x2 a;", 32),
        ("mat3 a[2]; float b;", 100),
        ("uint a[3][5]; vec2 b;", 72),
        ("S a; S b[2];", 48),
        ("uint a[N];", 28),
        ("layout(offset = 32) uint a;", 36),
        ("double a; float b;", 12),
        ("uint8_t a; uint8_t b[4];", 8),
        ("Node a; uint b;", 12),
    ],
)
def test_push_constant_bytes(members: str, size: int) -> None:
    code = compile_glsl(f"""
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_EXT_shader_8bit_storage : require
layout(local_size_x = 1) in;
layout(constant_id = 0) const uint N = 7;
struct S {{ vec2 x; uint y[2]; }};
layout(buffer_reference) buffer Node;
layout(buffer_reference, std430) buffer Node {{ Node next; uint value; }};
layout(push_constant, std430) uniform Push {{ {members} }} push;
void main() {{}}
""")
    assert read_interface(code).push_constant_bytes == size


@pytest.mark.parametrize(
    ("constant", "value", "expected"),
    [
        (SpecConstant(0, "bool", 32, False), True, b"\1\0\0\0"),
        (SpecConstant(0, "uint", 32, 0), 0xFFFFFFFF, b"\xff" * 4),
        (SpecConstant(0, "uint", 32, 0), np.uint32(258), b"\2\1\0\0"),
        (SpecConstant(0, "int", 16, 0), -2, b"\xfe\xff"),
        (SpecConstant(0, "uint", 8, 0), 255, b"\xff"),
        (SpecConstant(0, "uint", 64, 0), 1 << 63, b"\0" * 7 + b"\x80"),
        (SpecConstant(0, "float", 32, 0.0), np.float32(1.0), b"\0\0\x80\x3f"),
        (SpecConstant(0, "float", 64, 0.0), 1, b"\0" * 6 + b"\xf0\x3f"),
        (SpecConstant(0, "float", 16, 0.0), float("inf"), b"\0\x7c"),
    ],
)
def test_encoded_specialization_constants(
    constant: SpecConstant, value: float, expected: bytes
) -> None:
    assert constant.encode(value) == expected


@pytest.mark.parametrize(
    ("constant", "value", "words"),
    [
        (
            SpecConstant(7, "uint", 32, 0),
            -1,
            r"constant 7 is a 32-bit uint: found int -1; .*0 \.\.",
        ),
        (SpecConstant(7, "int", 8, 0), 128, r"found int 128; give an int in -128 \.\. 127"),
        (SpecConstant(7, "uint", 32, 0), 1.0, "found float 1.0"),
        (SpecConstant(7, "uint", 32, 0), True, "found bool True"),
        (SpecConstant(7, "float", 32, 0.0), False, "give a number"),
        (SpecConstant(7, "bool", 32, True), 1, "found int 1; give True or False"),
        (SpecConstant(7, "float", 32, 0.0), 1e39, "found float 1e.39"),
        (SpecConstant(7, "float", 64, 0.0), 10**400, "found int of 1329 bits"),
        (SpecConstant(7, "uint", 64, 0), "3", "found str; give an int"),
    ],
)
def test_values_that_do_not_fit_their_constant_are_refused(
    constant: SpecConstant, value: float, words: str
) -> None:
    with pytest.raises(SpirvError, match=words):
        constant.encode(value)


def test_the_workgroup_size_constant_overrides_execution_modes() -> None:
    by_id = ((16, 1, 17, 8, 4, 2), (331, 1, 38, 21, 21, 20))
    decorated = kernel(*WORKGROUP, size=by_id)
    assert read_interface(decorated).local_size == LocalSize((16, 1, 2), (5, None, 6), True)
    plain = kernel(*WORKGROUP[1:], size=by_id)
    assert read_interface(plain).local_size == LocalSize((1, 1, 16), (None, None, 5), True)


@pytest.mark.parametrize(
    ("decorations", "read_only"),
    [
        ([(71, 13, 24)], {7}),
        ([(72, 11, 0, 24), (72, 11, 1, 24)], {7}),
        ([(72, 11, 0, 24)], set()),
    ],
)
def test_read_only_bindings(decorations: list[Instruction], read_only: set[int]) -> None:
    found = read_interface(kernel(*decorations, *BUFFER, *BUFFER_VARIABLE))
    assert found.bindings == (7,)
    assert found.read_only == read_only


def test_a_repeated_spec_id_must_have_one_type() -> None:
    two = ((71, 20, 1, 5), (71, 21, 1, 5), (21, 10, 32, 0), (21, 11, 32, 1))
    same = read_interface(kernel(*two, (50, 10, 20, 1), (50, 10, 21, 64)))
    assert same.constants == (SpecConstant(5, "uint", 32, 1),)
    with pytest.raises(SpirvError, match="5 is both a 32-bit uint and a 32-bit int"):
        read_interface(kernel(*two, (50, 10, 20, 1), (50, 11, 21, 64)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        (
            "layout(set=0, binding=3) uniform U { uint a; } u; "
            "layout(set=0, binding=5) uniform V { uint a; } v;",
            "bindings 3 and 5 are uniform buffers: .*one block",
        ),
        (
            "layout(set=0, binding=3) uniform U { uint a; } u; "
            "layout(set=0, binding=3) buffer V { uint a; } v;",
            "binding 3 is both",
        ),
        ("layout(set=0, binding=3, r32f) uniform image2D u;", "binding 3 is an image"),
        ("layout(set=0, binding=3) uniform sampler2D u;", "binding 3 is a combined image"),
        ("layout(set=0, binding=3) buffer U { uint a; } u[4];", "binding 3 is an array"),
        ("layout(set=2, binding=3) buffer U { uint a; } u;", "in descriptor set 2: use set 0"),
        ("layout(set=1, binding=3) uniform U { uint a; } u;", "in descriptor set 1: use set 0"),
    ],
)
@pytest.mark.parametrize("vulkan", ["1.0", "1.3"])  # storage buffers have a class since 1.1
def test_refused_resources(declaration: str, words: str, vulkan: str) -> None:
    constant = "layout(constant_id = 0) const uint N = 2;"
    body = f"layout(local_size_x = 1) in; {constant} {declaration} void main() {{}}"
    with pytest.raises(SpirvError, match=words):
        read_interface(compile_glsl(body, vulkan))


def test_a_fragment_shader_is_refused() -> None:
    with pytest.raises(SpirvError, match=r"no GLCompute entry point \(found: Fragment\)"):
        read_interface(compile_glsl("void main() {}", stage="fragment"))


HEADER = assemble()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (b"", "found 0 bytes"),
        (HEADER[:16], "found 16 bytes"),
        (HEADER + b"\0", "found 21 bytes"),
        (b"#version 450\nvoid main() {} // \xc3\xa9\n", "source text.*compile"),
        (struct.pack(">5I", 0x07230203, 0x10000, 0, 9, 0), "big-endian"),
        (struct.pack("<5I", 0x07230204, 0x10000, 0, 9, 0), "magic number 0x07230204"),
        (assemble(version=0x10700), "version word 0x00010700"),
        (assemble(bound=0), "id bound of 0"),
        (assemble(bound=1 << 22), "id bound of 4194304"),
        (HEADER[:16] + b"\1\0\0\0", "schema 1"),
        (HEADER + struct.pack("<I", 17), "word 5 .opcode 17. claims 0 words"),
        (HEADER + struct.pack("<2I", 3 << 16 | 17, 1), "claims 3 words, 2 are left"),
        (assemble((21, 10, 32)), "OpTypeInt at word 5 lacks 1 of its operands"),
        (assemble((30, 10, 100)), "OpTypeStruct at word 5 uses id 100: ids must be in 1 .. 99"),
        (assemble((20, 10), (20, 10)), "defines %10, which is defined already"),
        (assemble((71, 10, 33)), "decoration 33 of %10 has 0 operands, it takes 1"),
        (assemble((71, 10, 33, 1, 2)), "decoration 33 of %10 has 2 operands, it takes 1"),
        (assemble((72, 10, 0, 24, 1)), "decoration 24 of %10 has 1 operands, it takes 0"),
        (assemble((21, 10, 32, 0, 0)), "OpTypeInt at word 5 has 1 beyond its operands"),
        (assemble((73, 10)), "flatten-decorations"),
        (assemble((17, 6)), "capability Kernel: OpenCL"),
        (assemble(CAPABILITY), "found: none"),
        (assemble((15, 5, 1, 0x61616161)), "nul-terminated"),
        (assemble((15, 5, 1, 0xFF)), "nul-terminated UTF-8"),
        (assemble(ENTRY, (15, 5, 2, *name_words(b"other"))), "'main', 'other'.*one per module"),
        (assemble(ENTRY, SIZE), "'main' has no function"),
        (assemble(ENTRY, SIZE, FUNCTION[0]), "ends inside a function"),
        (kernel(size=()), "no local size"),
        (assemble(ENTRY, SIZE, FUNCTION[0], (56,)), "OpFunctionEnd at word .* is out of place"),
        (assemble(ENTRY, SIZE, *FUNCTION[1:]), "248 at word 16 is outside of a function"),
        (assemble(ENTRY, SIZE, *FUNCTION[:2], (56,)), "OpFunctionEnd .* out of place: a function"),
        (
            assemble(ENTRY, SIZE, *FUNCTION[:3], (0,), (56,)),
            "instruction 0 at word .* out of place",
        ),
        (assemble(ENTRY, SIZE, *FUNCTION[:3], (253,), (56,)), "253 at word .* is out of place"),
        (assemble(ENTRY, SIZE, *FUNCTION[:3]), "ends inside a function"),
        (code_kernel((61, 2, 7)), "the instruction 61 at word .* lacks 1 of its operands"),
        (code_kernel((61, 2, 7, 200)), "the instruction 61 at word .* uses id 200"),
        (code_kernel((128, 2, 7, 4, 0)), "the instruction 128 at word .* uses id 0"),
        (code_kernel((61, 4, 7, 8)), "the instruction 61 at word .* uses %8, which is not defined"),
        (code_kernel((248, 4)), "the instruction 248 at word .* defines %4, which is defined"),
        (kernel(size=((16, 1, 17, 8, 0, 1),)), r"\(8, 0, 1\)"),
        (kernel(size=((16, 1, 17, 8),)), "three dimensions"),
        (kernel(size=((331, 1, 38, 5, 5, 5),)), "given by an id that is not defined"),
        (kernel((71, 24, 11, 25)), "the WorkgroupSize %24"),
        (kernel(*BUFFER[1:], *BUFFER_VARIABLE), "%13 has no binding"),
        (kernel((21, 10, 32, 0), (59, 10, 13, 12)), "its type must be a pointer"),
        (kernel((21, 10, 64, 0), (71, 11, 1, 0), (50, 10, 11, 1)), "has 1 words"),
        (push_kernel((21, 10, 32, 0), (30, 50, 10)), "member 0 .* has no Offset"),
        (push_kernel((20, 10), (72, 50, 0, 35, 0), (30, 50, 10)), "hold OpTypeBool"),
        (
            push_kernel((21, 10, 32, 0), (72, 50, 0, 35, 1 << 31), (30, 50, 10)),
            "constants have 2147",
        ),
        (push_kernel((72, 50, 0, 35, 0), (30, 50, 50)), "nested too deep, or contains itself"),
        (push_kernel(*FLOATS, (23, 11, 10, 27), (30, 50, 11)), "a vector .* not of 2 to 4 numbers"),
        (push_kernel(*FLOATS, (23, 11, 10, 1), (30, 50, 11)), "a vector .* not of 2 to 4 numbers"),
        (push_kernel(*FLOATS, *matrix(4, 2), (30, 50, 12)), "whose MatrixStride is too small"),
        (push_kernel(*FLOATS, *matrix(8, 5), (30, 50, 12)), "a matrix .* without columns"),
        (
            push_kernel(*FLOATS, *ARRAY, (71, 12, 6, 7), (30, 50, 12)),
            "of 8 bytes are 7 bytes apart",
        ),
    ],
)
def test_malformed_modules_are_refused(code: bytes, words: str) -> None:
    with pytest.raises(SpirvError, match=words):
        read_interface(code)


def test_of_two_blocks_of_push_constants_the_used_one_counts() -> None:
    types = ((21, 10, 32, 0), (30, 11, 10), (30, 12, 10, 10), (32, 13, 9, 11), (32, 14, 9, 12))
    offsets = ((72, 11, 0, 35, 8), (72, 12, 0, 35, 0), (72, 12, 1, 35, 20))
    variables = ((59, 13, 15, 9), (59, 14, 16, 9))
    load = (FUNCTION[0], FUNCTION[1], (61, 11, 17, 15), *FUNCTION[2:])
    code = assemble(CAPABILITY, ENTRY, SIZE, *offsets, *types, *variables, *load)
    found = read_interface(code)
    assert [member.offset for member in found.push_members] == [8]
    assert found.push_constant_bytes == 24


def test_a_type_nested_repeatedly_is_sized_in_linear_time() -> None:
    types: list[Instruction] = [(21, 9, 32, 0)]
    for depth in range(27):
        outer, inner = 50 - 26 + depth, 9 if depth == 0 else 49 - 26 + depth
        types += [(72, outer, 0, 35, 0), (72, outer, 1, 35, 4 << depth), (30, outer, inner, inner)]
    with pytest.raises(SpirvError, match=f"the push constants have {4 << 27} bytes: devices have"):
        read_interface(push_kernel(*types))


def test_debug_lines_and_unknown_instructions_are_accepted_anywhere() -> None:
    line, no_line, unknown, debug = (8, 5, 1, 1), (317,), (6000, 4, 9, 77), (12, 4, 6, 5, 1, 77)
    text = (7, 5, 0)
    code = assemble(
        CAPABILITY, ENTRY, SIZE, text, line, FUNCTION[0], line, FUNCTION[1], line, unknown,
        (128, 4, 10, 9, 9), no_line, FUNCTION[2], line, FUNCTION[3], debug, no_line,
    )  # fmt: skip
    assert read_interface(code).entry_point == "main"


def test_shared_types_and_expressions_used_repeatedly_are_measured_in_linear_time() -> None:
    types: list[Instruction] = [(21, 9, 32, 0)]
    types += [(30, outer, outer - 1, outer - 1) for outer in range(10, 51)]
    types += [(50, 9, 60, 1), (71, 60, 1, 5)]  # doubled 20 times: 2^20
    types += [(52, 9, sum_, 128, sum_ - 1, sum_ - 1) for sum_ in range(61, 81)]
    types += [(28, 81, 50, 80), (32, 51, 4, 81), (59, 51, 52, 4)]
    load = (FUNCTION[0], FUNCTION[1], (61, 81, 90, 52), *FUNCTION[2:])
    found = read_interface(assemble(CAPABILITY, ENTRY, SIZE, *types, *load))
    assert found.shared_memory.measure({}) == 4 * 2**41 * 2**20
    assert found.shared_memory.measure({5: 3}) == 4 * 2**41 * 3 * 2**20


@pytest.mark.parametrize(
    ("expression", "length"),
    [
        ((52, 9, 63, 134, 60, 61), 7 // 2), ((52, 9, 63, 137, 60, 61), 7 % 2),
        ((52, 9, 63, 134, 60, 62), 0),  # by zero: not known
        ((52, 10, 63, 135, 64, 61), 0), ((52, 10, 63, 130, 61, 60), 0),  # negative: no length
        ((52, 10, 63, 126, 64), 7),  # minus -7
        ((52, 9, 63, 194, 60, 61), 7 >> 2), ((52, 9, 63, 196, 60, 61), 7 << 2),
        ((52, 9, 63, 197, 60, 61), 7 | 2), ((52, 9, 63, 198, 60, 61), 7 ^ 2),
        ((52, 9, 63, 199, 60, 61), 7 & 2), ((52, 9, 63, 169, 65, 60, 61), 7),
        ((52, 9, 63, 113, 60), 7), ((52, 9, 63, 81, 66, 1), 2), ((52, 9, 63, 132, 60, 67), 63),
    ],
)  # fmt: skip
def test_lengths_that_are_expressions(expression: Instruction, length: int) -> None:
    types: list[Instruction] = [
        (21, 9, 32, 0), (21, 10, 32, 1), (20, 11), (23, 12, 9, 2), (43, 9, 60, 7), (43, 9, 61, 2),
        (43, 9, 62, 0), (43, 10, 64, 0xFFFFFFF9), (48, 11, 65), (44, 12, 66, 60, 61),
        (52, 9, 67, 128, 60, 61), expression, (28, 81, 9, 63), (32, 51, 4, 81), (59, 51, 52, 4),
    ]  # fmt: skip
    load = (FUNCTION[0], FUNCTION[1], (61, 81, 90, 52), *FUNCTION[2:])
    found = read_interface(assemble(CAPABILITY, ENTRY, SIZE, *types, *load))
    assert found.shared_memory.measure({}) == 4 * length


def test_a_module_truncated_at_any_word_is_refused() -> None:
    for code in (VALID, compile_glsl(FULL, "1.3")):
        read_interface(code)
        for end in range(0, len(code), 4):
            with pytest.raises(SpirvError):
                read_interface(code[:end])


def check_no_crash(code: bytes) -> None:
    try:
        assert isinstance(read_interface(code), ShaderInterface)
    except SpirvError as error:
        assert str(error)


@given(st.binary(max_size=400), st.booleans())
def test_random_bytes_do_not_crash_the_reader(tail: bytes, with_header: bool) -> None:
    check_no_crash(HEADER + tail if with_header else tail)


INTERESTING = st.integers(0, 60) | st.integers(0, 2**32 - 1)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0), INTERESTING), min_size=1, max_size=6))
def test_mutated_words_do_not_crash_the_reader(changes: list[tuple[int, int]]) -> None:
    words = list(struct.unpack(f"<{len(VALID) // 4}I", VALID))
    for at, word in changes:
        words[at % len(words)] = word
    check_no_crash(struct.pack(f"<{len(words)}I", *words))


OPCODES = (15, 16, 20, 21, 22, 23, 24, 28, 29, 30, 32, 43, 50, 51, 59, 71, 72, 331)
RANDOM_INSTRUCTION = st.builds(
    lambda opcode, operands: (opcode, *operands),
    st.sampled_from(OPCODES),
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
)


@settings(max_examples=200)
@given(st.lists(RANDOM_INSTRUCTION, max_size=12))
def test_random_instructions_do_not_crash_the_reader(instructions: list[Instruction]) -> None:
    check_no_crash(kernel(*instructions))
