"""Built-ins of compute shaders: types, storage classes, and inputs that are no built-ins. All
modules here that are refused pass spirv-val 2023.1 or crashed lavapipe, or both."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import SpirvError
from gpu_executor.spirv import read_interface
from tests.support.glsl import assemble_spirv, compile_glsl

REQUIRED = {
    "NumWorkgroups": (24, "uvec3"), "WorkgroupId": (26, "uvec3"),
    "LocalInvocationId": (27, "uvec3"), "GlobalInvocationId": (28, "uvec3"),
    "LocalInvocationIndex": (29, "uint"),
    "SubgroupSize": (36, "uint"), "NumSubgroups": (38, "uint"), "SubgroupId": (40, "uint"),
    "SubgroupLocalInvocationId": (41, "uint"), "SubgroupEqMask": (4416, "uvec4"),
    "SubgroupGeMask": (4417, "uvec4"), "SubgroupGtMask": (4418, "uvec4"),
    "SubgroupLeMask": (4419, "uvec4"), "SubgroupLtMask": (4420, "uvec4"),
    "DeviceIndex": (4438, "uint"),
}  # fmt: skip
SIGNED = {"uint": "int", "uvec3": "ivec3", "uvec4": "ivec4"}
TYPES = {
    "uint": "OpTypeInt 32 0", "int": "OpTypeInt 32 1", "float": "OpTypeFloat 32",
    "uint64_t": "OpTypeInt 64 0", "uvec2": "OpTypeVector %uint 2", "uvec3": "OpTypeVector %uint 3",
    "uvec4": "OpTypeVector %uint 4", "ivec3": "OpTypeVector %int 3",
    "ivec4": "OpTypeVector %int 4", "vec3": "OpTypeVector %float 3",
    "uint[3]": "OpTypeArray %uint %three",
}  # fmt: skip
TEXT = """
OpCapability Shader
OpCapability Int64
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main" LISTED
OpExecutionMode %main LocalSize 8 1 1
OpDecorate %array ArrayStride 4
OpDecorate %block Block
OpMemberDecorate %block 0 Offset 0
OpDecorate %x DescriptorSet 0
OpDecorate %x Binding 0
DECORATIONS
%void = OpTypeVoid
%uint = OpTypeInt 32 0
%int = OpTypeInt 32 1
%float = OpTypeFloat 32
%zero = OpConstant %uint 0
%one = OpConstant %uint 1
%three = OpConstant %uint 3
%array = OpTypeRuntimeArray %uint
%block = OpTypeStruct %array
%block_pointer = OpTypePointer StorageBuffer %block
%pointer = OpTypePointer StorageBuffer %uint
%procedure = OpTypeFunction %void
%x = OpVariable %block_pointer StorageBuffer
DECLARATIONS
%main = OpFunction %void None %procedure
%start = OpLabel
%to = OpAccessChain %pointer %x %zero %zero
CODE
OpReturn
OpFunctionEnd
"""
DECORATED = "OpDecorate %it BuiltIn GlobalInvocationId"


def make(declarations: str, decorations: str = "", code: str = "", listed: str = "") -> bytes:
    text = TEXT.replace("DECLARATIONS", declarations).replace("DECORATIONS", decorations)
    return assemble_spirv(text.replace("CODE", code).replace("LISTED", listed))


def declare(kind: str, storage: str = "Input") -> str:
    known = ("uint", "int", "float")
    name = kind if kind in known else "kind"
    return "\n".join([
        "" if kind in known else f"%kind = {TYPES[kind]}",
        f"%kind_pointer = OpTypePointer {storage} %{name}",
        f"%it = OpVariable %kind_pointer {storage}",
    ])  # fmt: skip


def load(kind: str) -> str:
    return f"%value = OpLoad %{kind if kind in ('uint', 'int', 'float') else 'kind'} %it"


def make_input(kind: str, storage: str = "Input") -> bytes:
    """A kernel that loads a variable of a type, decorated as GlobalInvocationId."""
    return make(declare(kind, storage), DECORATED, load(kind), "%it" if storage == "Input" else "")


def set_built_in(code: bytes, number: int) -> bytes:
    """Make GlobalInvocationId another built-in."""
    words = list(struct.unpack(f"<{len(code) // 4}I", code))
    at = next(k for k in range(5, len(words)) if words[k - 1 : k + 1] == [11, 28])
    words[at] = number
    return struct.pack(f"<{len(words)}I", *words)


@pytest.mark.parametrize("found", TYPES)
def test_a_built_in_has_the_type_that_vulkan_requires(found: str) -> None:
    code = make_input(found)
    for name, (number, required) in REQUIRED.items():
        if found in (required, SIGNED[required]):
            assert read_interface(set_built_in(code, number)).local_size.size == (8, 1, 1)
            continue
        with pytest.raises(SpirvError) as refusal:
            read_interface(set_built_in(code, number))
        assert str(refusal.value).endswith(
            f"is the built-in {name} of type {found}: it must be of type {required}"
        )


def test_a_kernel_with_a_wrong_built_in_is_refused_before_a_driver_sees_it() -> None:
    with pytest.raises(
        SpirvError, match=r"LocalInvocationIndex of type uvec3: it must be .* uint$"
    ):
        gx.Kernel.from_spirv(set_built_in(make_input("uvec3"), 29), buffers="out")


@pytest.mark.parametrize("storage", ["Private", "Workgroup"])
def test_a_built_in_is_an_input(storage: str) -> None:
    with pytest.raises(
        SpirvError, match=f"GlobalInvocationId in storage class {storage}: .* Input"
    ):
        read_interface(make_input("uvec3", storage))


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "Position"), (15, "FragCoord"), (30, "WorkDim"), (37, "SubgroupMaxSize"),
     (42, "VertexIndex"), (4440, "ViewIndex"), (5374, "with the number 5374")],
)  # fmt: skip
def test_built_ins_of_other_shaders_are_refused(number: int, name: str) -> None:
    for kind in ("uint", "uvec3"):
        with pytest.raises(SpirvError, match=f"built-in {name}, which a compute .* NumWorkgroups"):
            read_interface(set_built_in(make_input(kind), number))


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("used", [True, False])
def test_an_input_is_a_built_in(used: bool, listed: bool) -> None:
    code = make(declare("uvec3"), "", load("uvec3") if used else "", "%it" if listed else "")
    if not used and not listed:
        read_interface(code)  # it may belong to another entry point
        return
    with pytest.raises(SpirvError, match=r"is an input .* no built-in: a compute shader has no"):
        read_interface(code)


def test_a_compute_shader_has_no_outputs() -> None:
    store = "OpStore %it %zero"
    for decorations in ("", "OpDecorate %it BuiltIn LocalInvocationIndex"):
        with pytest.raises(SpirvError, match=r"Output"):
            read_interface(make(declare("uint", "Output"), decorations, store, "%it"))


def test_inputs_of_another_entry_point_are_not_looked_at() -> None:
    text = TEXT.replace(
        "OpExecutionMode",
        'OpEntryPoint Vertex %other "other" %position %vertex %from\nOpExecutionMode',
    )
    text = text.replace("DECORATIONS", """
OpDecorate %position BuiltIn Position
OpDecorate %vertex BuiltIn VertexIndex
OpDecorate %from Location 0
""").replace("DECLARATIONS", """
%vec4 = OpTypeVector %float 4
%out = OpTypePointer Output %vec4
%in = OpTypePointer Input %uint
%float_in = OpTypePointer Input %float
%position = OpVariable %out Output
%vertex = OpVariable %in Input
%from = OpVariable %float_in Input
%other = OpFunction %void None %procedure
%begin = OpLabel
%loaded = OpLoad %uint %vertex
OpReturn
OpFunctionEnd
""")  # fmt: skip
    code = assemble_spirv(text.replace("CODE", "OpStore %to %three").replace("LISTED", ""))
    assert read_interface(code).bindings == (0,)


BLOCK = """
%kind = OpTypeVector %uint 3
%inputs = OpTypeStruct {types}
%inputs_pointer = OpTypePointer Input %inputs
%member_pointer = OpTypePointer Input %uint
%it = OpVariable %inputs_pointer Input
"""
BLOCK_CODE = """
%from = OpAccessChain %member_pointer %it %one
%value = OpLoad %uint %from
%component = OpAccessChain %member_pointer %it %zero %zero
%index = OpLoad %uint %component
%there = OpAccessChain %pointer %x %zero %index
OpStore %there %value
"""
BLOCK_DECORATIONS = """
OpDecorate %inputs Block
OpMemberDecorate %inputs 0 BuiltIn GlobalInvocationId
"""


def make_block(types: str, decorations: str, code: str = "") -> bytes:
    return make(BLOCK.format(types=types), BLOCK_DECORATIONS + decorations, code, "%it")


def test_built_ins_may_be_members_of_a_block(gpu: gx.PersistentVulkanBackend) -> None:
    index = "OpMemberDecorate %inputs 1 BuiltIn LocalInvocationIndex"
    code = make_block("%kind %uint", index, BLOCK_CODE)
    kernel = gx.Kernel.from_spirv(code, buffers="out", out_shape=(24,), grid=(3, 1, 1))
    np.testing.assert_array_equal(gpu.run(kernel), np.arange(24, dtype=np.uint32) % 8)
    with pytest.raises(
        SpirvError, match=r"member 1 of .* LocalInvocationIndex of type uvec3: .*uint"
    ):
        read_interface(make_block("%kind %kind", index))
    with pytest.raises(SpirvError, match=r"member 0 .* GlobalInvocationId of type float: .*uvec3"):
        read_interface(make_block("%float %uint", index))
    with pytest.raises(SpirvError, match=r"an input .* that is no built-in"):
        read_interface(make_block("%kind %uint", ""))
    with pytest.raises(SpirvError, match=r"WorkgroupSize .* is a member: .* three constants"):
        read_interface(
            make_block("%kind %kind", "OpMemberDecorate %inputs 1 BuiltIn WorkgroupSize")
        )


SIZE = "OpDecorate %size BuiltIn WorkgroupSize"


@pytest.mark.parametrize("composite", ["OpConstantComposite", "OpSpecConstantComposite"])
def test_the_work_group_size_is_a_vector_of_three_constants(composite: str) -> None:
    def read(kind: str, parts: str) -> tuple[int, int, int]:
        declared = f"%kind = {kind}\n%size = {composite} %kind {parts}"
        return read_interface(make(declared, SIZE)).local_size.size

    assert read("OpTypeVector %uint 3", "%three %one %one") == (3, 1, 1)
    for kind, text in (
        ("OpTypeVector %uint 2", "uvec2"),
        ("OpTypeVector %uint 4", "uvec4"),
        ("OpTypeVector %float 3", "vec3"),
        ("OpTypeArray %uint %three", r"uint\[3\]"),
        ("OpTypeStruct %uint %uint %uint", "struct .*"),
    ):
        match = f"WorkgroupSize of type {text}: it must be of type uvec3"
        with pytest.raises(SpirvError, match=match):
            read(kind, "%three %one %one")


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ("%size = OpConstant %uint 8", "OpConstant"),
        ("%size = OpTypeVector %uint 3", "OpTypeVector"),
        ("%in = OpTypePointer Private %uint\n%size = OpVariable %in Private", "OpVariable"),
    ],
)
def test_nothing_else_is_the_work_group_size(declared: str, what: str) -> None:
    with pytest.raises(SpirvError, match=f"WorkgroupSize %.* is {what}: it must be a vector of"):
        read_interface(make(declared, SIZE))


def test_only_variables_are_other_built_ins() -> None:
    for target in ("%zero", "%main", "%block", "%start"):
        with pytest.raises(SpirvError, match=r"GlobalInvocationId decorates .* be a variable"):
            read_interface(make("", f"OpDecorate {target} BuiltIn GlobalInvocationId"))


def test_a_decoration_is_given_once() -> None:
    twice = f"{DECORATED}\nOpDecorate %it BuiltIn LocalInvocationIndex"
    with pytest.raises(SpirvError, match="decoration 11 with 28 and again with 29"):
        read_interface(make(declare("uvec3"), twice, load("uvec3"), "%it"))
    with pytest.raises(SpirvError, match="decoration 33 with 0 and again with 1"):
        read_interface(make("", "OpDecorate %x Binding 1"))
    same = f"{DECORATED}\n{DECORATED}"
    read_interface(make(declare("uvec3"), same, load("uvec3"), "%it"))


@pytest.mark.parametrize(
    "instruction",
    ["OpBitcast %uint %to", "OpIAdd %uint %to %one", "OpIAdd %uint %one %to", "OpNot %uint %x",
     "OpBitcast %pointer %one"],
)  # fmt: skip
def test_a_logical_pointer_is_not_a_number(instruction: str) -> None:
    with pytest.raises(SpirvError, match=r"uses the pointer %.* as a number: load it first"):
        read_interface(make("", "", f"%value = {instruction}"))


def test_an_address_is_a_number() -> None:
    code = compile_glsl(
        "#extension GL_EXT_buffer_reference : require\n"
        "#extension GL_EXT_buffer_reference_uvec2 : require\n"
        "layout(local_size_x = 1) in;\n"
        "layout(buffer_reference) buffer Node { uint value; };\n"
        "layout(binding = 0) buffer A { uvec2 a[]; };\n"
        "void main() { a[0] = uvec2(Node(a[1])); }",
        "1.2",
    )
    assert read_interface(code).bindings == (0,)
