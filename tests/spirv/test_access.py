"""What the reader says a shader does through its storage buffers."""

from __future__ import annotations

import pytest

from gpu_executor.errors import SpirvError
from gpu_executor.spirv import ShaderInterface, StorageBlock, read_interface
from tests.support.glsl import assemble_spirv, compile_glsl

LEVELS = [("-O0",), ("-O",)]
EXTENSIONS = """
#extension GL_EXT_shader_atomic_float : require
#extension GL_EXT_shader_atomic_float2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types : require
#extension GL_KHR_cooperative_matrix : enable
"""


def read(body: str, options: tuple[str, ...] = (), vulkan: str = "1.2") -> ShaderInterface:
    source = f"{EXTENSIONS}layout(local_size_x = 64) in;\n{body}"
    return read_interface(compile_glsl(source, vulkan, options=options))


def accesses(interface: ShaderInterface) -> dict[int, str]:
    return {buffer.binding: buffer.access for buffer in interface.buffers}


def buffer(interface: ShaderInterface, binding: int) -> StorageBlock:
    return next(each for each in interface.buffers if each.binding == binding)


BUFFERS = """
layout(binding = 0) buffer A { float a[]; };
layout(binding = 1) buffer B { float b[]; };
layout(binding = 2) buffer C { uint c[]; };
"""


ACCESSES = {
    "b[i] = a[i];": {0: "in", 1: "out"},
    "a[i] += 1.0; b[i] = 0.0;": {0: "inout", 1: "out"},
    "atomicAdd(c[0], uint(a[i]));": {0: "in", 2: "out"},
    "uint was = atomicOr(c[i], 3u); b[i] = float(was);": {1: "out", 2: "out"},
    "atomicAdd(c[0], 1u); b[i] = float(c[1]);": {1: "out", 2: "inout"},
    "atomicAdd(b[0], a[i]);": {0: "in", 1: "out"},
    "atomicMin(b[0], a[i]); atomicMax(b[1], a[i]);": {0: "in", 1: "out"},
    "b[i] = float(a.length()); c[i] = 1u;": {0: "in", 1: "out", 2: "out"},
    "if (a[i] > 0.0) b[i] = a[i];": {0: "in", 1: "out"},
    "for (int n = 0; n < 4; n++) b[i] += a[i + n];": {0: "in", 1: "inout"},
    "a[i] = float(c[i] >> 1);": {0: "out", 2: "in"},
    "int e; b[i] = frexp(a[i], e) + modf(a[i], a[i + 1]); c[i] = e;": {0: "inout", 1: "out"},
}
AT_LEVELS = [(code, ("-O0",)) for code in ACCESSES]
AT_LEVELS += [(code, ("-O",)) for code in ACCESSES if code.startswith(("uint", "if", "for", "int"))]
"""Optimised too where there is a variable, a branch or a loop."""


@pytest.mark.parametrize(("code", "options"), AT_LEVELS, ids=str)
def test_access_follows_from_loads_stores_and_atomic_operations(
    code: str, options: tuple[str, ...]
) -> None:
    found = read(f"{BUFFERS} void main() {{ uint i = gl_GlobalInvocationID.x; {code} }}", options)
    assert ACCESSES[code].items() <= accesses(found).items()


@pytest.mark.parametrize("options", LEVELS)
def test_functions_that_take_elements_are_followed(options: tuple[str, ...]) -> None:
    found = read(
        f"""{BUFFERS}
void raise_by(inout float x, float by) {{ x += by; }}
void set(out float x) {{ x = 3.0; }}
uint count(uint at) {{ return atomicAdd(c[at], 1u); }}
uint count_twice(uint at) {{ return count(at) + count(at + 1); }}
void main() {{ raise_by(a[0], 2.0); set(b[1]); count_twice(5); }}
""",
        options,
    )
    assert accesses(found) == {0: "inout", 1: "out", 2: "out"}
    assert [each.atomics for each in found.buffers] == [False, False, True]
    assert [each.stores for each in found.buffers] == [True, True, True]


def test_functions_that_are_not_called_do_not_count() -> None:
    found = read(f"""{BUFFERS}
shared float s[4];
void unused() {{ a[0] = 1.0; s[0] = 2.0; barrier(); atomicAdd(c[0], 1u); }}
void main() {{ b[0] = a[0]; }}
""")
    assert accesses(found) == {0: "in", 1: "out", 2: "in"}
    assert not buffer(found, 2).atomics
    assert (found.has_barriers, found.has_shared_memory, found.shared_memory.measure({})) == (
        False,
        False,
        0,
    )


def test_an_unused_buffer_is_an_input_unless_it_is_writeonly() -> None:
    found = read("""
layout(binding = 0) buffer A { float a[]; };
layout(binding = 3) readonly buffer B { float b[]; };
layout(binding = 5) writeonly buffer C { float c[]; };
void main() {}
""")
    assert accesses(found) == {0: "in", 3: "in", 5: "out"}
    assert not any(each.stores for each in found.buffers)
    assert found.read_only == {3}


def test_variables_of_one_binding_are_combined() -> None:
    found = read("""
layout(binding = 1) readonly buffer A { uint a[]; };
layout(binding = 1) writeonly buffer B { uint b[]; };
layout(binding = 2) readonly buffer C { uint c[]; } c;
layout(binding = 2) buffer D { uint c[]; } d;
void main() { b[0] = a[1] + c.c[0]; }
""")
    assert accesses(found) == {1: "inout", 2: "in"}
    assert found.read_only == frozenset()
    assert buffer(found, 2).layout == "{ uint c[] @0 stride 4; }"


def test_atomic_loads_and_stores() -> None:
    found = read("""
#pragma use_vulkan_memory_model
layout(binding = 0) buffer A { uint a[]; };
layout(binding = 1) buffer B { uint b[]; };
void main() {
    uint v = atomicLoad(a[0], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
    atomicStore(b[0], v, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelaxed);
}
""")
    assert accesses(found) == {0: "in", 1: "out"}
    assert [(each.stores, each.atomics) for each in found.buffers] == [(False, True), (True, True)]


def test_storage_buffers_of_vulkan_1_0_are_structs_of_class_uniform() -> None:
    found = read(f"{BUFFERS} void main() {{ b[0] = a[0]; atomicAdd(c[0], 1u); }}", vulkan="1.0")
    assert accesses(found) == {0: "in", 1: "out", 2: "out"}


def test_barriers_and_shared_memory() -> None:
    found = read("""
layout(constant_id = 4) const uint N = 24;
layout(binding = 0) buffer A { float a[]; };
struct Pair { vec3 position; bool flag; };
shared float s[2 * N + gl_WorkGroupSize.x];
shared Pair pairs[3];
shared float unused[1000];
void wait() { barrier(); }
void main() { s[0] = a[0]; pairs[0].flag = true; wait(); a[1] = s[0]; }
""")
    assert found.has_barriers
    assert found.has_shared_memory
    # A vec3 and a bool fill 16 bytes by std430.
    assert found.shared_memory.measure({}) == (2 * 24 + 64) * 4 + 3 * 16


HEAD = """
OpCapability Shader
OpCapability VariablePointers
OpExtension "SPV_KHR_variable_pointers"
%glsl = OpExtInstImport "GLSL.std.450"
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main"
OpExecutionMode %main LocalSize 1 1 1
OpDecorate %array ArrayStride 4
OpDecorate %block Block
OpMemberDecorate %block 0 Offset 0
"""
TYPES = """
%void = OpTypeVoid
%bool = OpTypeBool
%true = OpConstantTrue %bool
%float = OpTypeFloat 32
%uint = OpTypeInt 32 0
%zero = OpConstant %uint 0
%one = OpConstant %float 1
%array = OpTypeRuntimeArray %float
%block = OpTypeStruct %array
%block_pointer = OpTypePointer StorageBuffer %block
%pointer = OpTypePointer StorageBuffer %float
%pointer_variable = OpTypePointer Function %pointer
%procedure = OpTypeFunction %void
%taking = OpTypeFunction %pointer %pointer
%reading = OpTypeFunction %void %pointer
"""


def assemble(body: str, decorations: str = "", functions: str = "") -> bytes:
    """A module with the buffers %b0 to %b3 at bindings 0 to 3, and `body` as its main function."""
    bound = "".join(
        f"OpDecorate %b{at} DescriptorSet 0\nOpDecorate %b{at} Binding {at}\n" for at in range(4)
    )
    variables = "".join(f"%b{at} = OpVariable %block_pointer StorageBuffer\n" for at in range(4))
    main = f"%main = OpFunction %void None %procedure\n{body}\nOpReturn\nOpFunctionEnd\n"
    return assemble_spirv(f"{HEAD}{bound}{decorations}{TYPES}{variables}{main}{functions}")


def element(at: int) -> str:
    return f"%e{at} = OpAccessChain %pointer %b{at} %zero %zero\n"


def test_a_phi_of_pointers_reaches_all_of_them() -> None:
    found = read_interface(
        assemble(f"""
%start = OpLabel
{element(0)}{element(1)}{element(2)}
OpSelectionMerge %end None
OpBranchConditional %true %yes %end
%yes = OpLabel
OpBranch %end
%end = OpLabel
%either = OpPhi %pointer %e0 %start %e1 %yes
%copy = OpCopyObject %pointer %either
OpStore %copy %one
%value = OpLoad %float %e2
""")
    )
    assert accesses(found) == {0: "out", 1: "out", 2: "in", 3: "in"}


def test_a_phi_in_a_loop_is_followed_back() -> None:
    found = read_interface(
        assemble(f"""
%start = OpLabel
{element(0)}
OpBranch %head
%head = OpLabel
%now = OpPhi %pointer %e0 %start %next %again
OpLoopMerge %end %again None
OpBranchConditional %true %again %end
%again = OpLabel
OpStore %now %one
%next = OpPtrAccessChain %pointer %now %zero
OpBranch %head
%end = OpLabel
""", "OpDecorate %pointer ArrayStride 4\n")
    )  # fmt: skip
    assert accesses(found)[0] == "out"


def test_selected_returned_and_passed_pointers_are_followed() -> None:
    found = read_interface(
        assemble(
            f"""
%start = OpLabel
{element(0)}{element(1)}{element(2)}
%either = OpSelect %pointer %true %e0 %e1
%same = OpFunctionCall %pointer %identity %either
OpStore %same %one
%read = OpFunctionCall %void %load %e2
""",
            "",
            """
%identity = OpFunction %pointer None %taking
%given = OpFunctionParameter %pointer
%label = OpLabel
OpReturnValue %given
OpFunctionEnd
%load = OpFunction %void None %reading
%address = OpFunctionParameter %pointer
%inside = OpLabel
%loaded = OpLoad %float %address
OpReturn
OpFunctionEnd
""",
        )
    )
    assert accesses(found) == {0: "out", 1: "out", 2: "in", 3: "in"}


def test_memory_copies() -> None:
    body = f"%start = OpLabel\n{element(0)}{element(1)}OpCopyMemory %e1 %e0"
    assert accesses(read_interface(assemble(body))) == {0: "in", 1: "out", 2: "in", 3: "in"}


def test_a_pointer_kept_in_memory_may_be_read_and_written() -> None:
    body = f"""
%start = OpLabel
%kept = OpVariable %pointer_variable Function
{element(0)}
OpStore %kept %e0
%again = OpLoad %pointer %kept
%value = OpLoad %float %again
"""
    found = read_interface(assemble(body))
    assert accesses(found) == {0: "inout", 1: "in", 2: "in", 3: "in"}
    # What the code declares is not doubted.
    found = read_interface(assemble(body, "OpDecorate %b0 NonWritable\n"))
    assert accesses(found)[0] == "in"
    assert not buffer(found, 0).stores


def test_a_pointer_in_an_unknown_instruction_may_be_read_and_written() -> None:
    code = assemble(f"%start = OpLabel\n{element(0)}%x = OpConvertPtrToU %uint %e0")
    assert accesses(read_interface(code)) == {0: "inout", 1: "in", 2: "in", 3: "in"}


def test_the_pointer_of_an_extended_instruction_is_stored_to() -> None:
    found = read_interface(
        assemble(f"%start = OpLabel\n{element(0)}%m = OpExtInst %float %glsl Modf %one %e0")
    )
    assert accesses(found)[0] == "out"


@pytest.mark.parametrize(
    ("decoration", "code", "words"),
    [
        ("NonWritable", "OpStore %e0 %one", "binding 0 is readonly, but the code stores to it"),
        ("NonReadable", "%v = OpLoad %float %e0", "binding 0 is writeonly, but the code loads"),
    ],
)
def test_code_that_contradicts_its_decorations_is_refused(
    decoration: str, code: str, words: str
) -> None:
    body = f"%start = OpLabel\n{element(0)}{code}"
    for decorated in ("OpDecorate %b0 {}\n", "OpMemberDecorate %block 0 {}\n"):
        with pytest.raises(SpirvError, match=words):
            read_interface(assemble(body, decorated.format(decoration)))


def test_a_call_of_something_else_than_a_function_is_refused() -> None:
    body = "%start = OpLabel\n%x = OpFunctionCall %void %zero"
    with pytest.raises(SpirvError, match="which is not a function"):
        read_interface(assemble(body))
