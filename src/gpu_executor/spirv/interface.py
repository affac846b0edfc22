"""The interface of a compute shader: which function is run, and all that it expects."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gpu_executor.errors import SpirvError
from gpu_executor.spirv.bindings import storage_buffers
from gpu_executor.spirv.capabilities import CAPABILITY_NAMES, REFUSED_CAPABILITIES
from gpu_executor.spirv.constants import SpecConstant, spec_constants
from gpu_executor.spirv.local_size import LocalSize, local_size
from gpu_executor.spirv.module import Module, read_module
from gpu_executor.spirv.sizes import push_constant_bytes

# fmt: off
_MODEL_NAMES = {
    0: "Vertex", 1: "TessellationControl", 2: "TessellationEvaluation", 3: "Geometry",
    4: "Fragment", 5: "GLCompute", 6: "Kernel", 5313: "RayGenerationKHR", 5364: "TaskEXT",
    5365: "MeshEXT",
}
# fmt: on
_GL_COMPUTE = 5


@dataclass(frozen=True, slots=True)
class ShaderInterface:
    """What a compute shader expects of whoever runs it."""

    version: tuple[int, int]
    entry_point: str
    local_size: LocalSize
    bindings: tuple[int, ...]  # storage buffers of descriptor set 0, sorted
    read_only: frozenset[int]  # those bindings through which nothing can be written
    push_constant_bytes: int  # rounded up to a multiple of 4, as VkPushConstantRange wants it
    constants: tuple[SpecConstant, ...]  # sorted by spec_id, each once
    capabilities: frozenset[int]

    def constant(self, spec_id: int) -> SpecConstant | None:
        """The specialization constant of that SpecId, if there is one."""
        return next((c for c in self.constants if c.spec_id == spec_id), None)

    def capability_names(self) -> tuple[str, ...]:
        """The capabilities in words, in the order of their numbers."""
        return tuple(CAPABILITY_NAMES.get(c, f"capability {c}") for c in sorted(self.capabilities))


def read_interface(code: bytes) -> ShaderInterface:
    """The interface of the one compute shader in `code`; SpirvError where it cannot be run."""
    module = read_module(code)
    capabilities = frozenset(operands[0] for operands in module.all("OpCapability"))
    for capability, advice in REFUSED_CAPABILITIES.items():
        if capability in capabilities:
            raise SpirvError(f"found the capability {CAPABILITY_NAMES[capability]}: {advice}")
    entry, name = _compute_entry_point(module)
    writable = storage_buffers(module)
    return ShaderInterface(
        version=module.version,
        entry_point=name,
        local_size=local_size(module, entry),
        bindings=tuple(sorted(writable)),
        read_only=frozenset(binding for binding in writable if not writable[binding]),
        push_constant_bytes=push_constant_bytes(module),
        constants=spec_constants(module),
        capabilities=capabilities,
    )


def _compute_entry_point(module: Module) -> tuple[int, str]:
    """The id of the function to run, and its name."""
    entries = [(o[0], o[1], _literal_string(o[2:])) for o in module.all("OpEntryPoint")]
    compute = [(function, name) for model, function, name in entries if model == _GL_COMPUTE]
    if not compute:
        models = ", ".join(_MODEL_NAMES.get(e[0], f"model {e[0]}") for e in entries) or "none"
        raise SpirvError(
            f"found no GLCompute entry point (found: {models}): compile a compute shader"
        )
    if len(compute) > 1:
        names = ", ".join(repr(name) for _, name in compute)
        raise SpirvError(f"found several compute entry points ({names}): compile one per module")
    if module.definition(compute[0][0])[0] != "OpFunction":
        raise SpirvError(
            f"the entry point {compute[0][1]!r} has no function: is the file complete?"
        )
    return compute[0]


def _literal_string(words: tuple[int, ...]) -> str:
    """A nul-terminated UTF-8 string at the start of `words` (Spec 2.2.1, Literal)."""
    raw, nul, _ = struct.pack(f"<{len(words)}I", *words).partition(b"\0")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        nul = b""
    if not nul:
        raise SpirvError("an entry point's name is not nul-terminated UTF-8: recompile the module")
    return text
