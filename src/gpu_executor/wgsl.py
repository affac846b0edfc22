"""WGSL: a kernel's code for WebGPU, and the prelude that precedes every kernel's text.

The contract is that of SPIR-V kernels (`kernel.py`), in WebGPU's terms:

- Storage buffers of group 0: the inputs at bindings 0, 1, ..., then the outputs, then the status
  word if the kernel declares one. The entry point is `main`, its work-group size
  `@workgroup_size(work_group)`.
- `param(0u)` is the number of elements; `param(1u)` and so on are the words of `data`, then those
  of `push_of`, then the parameters of the call. They are immediates if the device has them, else a
  uniform buffer.
- `first_element(group, groups, local)` is the index of an invocation's first element. The
  invocation processes `per_invocation` elements at a distance of `work_group`. With `packed`, these
  indices count vectors of that many elements; every buffer is padded to whole vectors.

The prelude defines these names and `params`; a text must not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

PARAMETER_WORDS = 32
"""Words of parameters: 128 bytes, the size of immediates on devices that have them."""

_PRELUDE = """\
struct Params {{ words: array<vec4<u32>, 8> }}
{variable} params: Params;
override work_group: u32 = 64u;
override per_invocation: u32 = 1u;
fn param(i: u32) -> u32 {{ return params.words[i / 4u][i % 4u]; }}
fn first_element(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {{
    return (group.y * groups.x + group.x) * (work_group * per_invocation) + local;
}}
"""
PRELUDE_LINES = _PRELUDE.count("\n")


@dataclass(frozen=True, slots=True)
class WgslCode:
    """The text of one kernel without the prelude, and its data."""

    text: str
    data: bytes = b""
    packed: int = 1
    """Elements per vector that an invocation loads: 4 if the text works on `vec4`."""
    params: tuple[str, ...] = ()
    """The names of the parameters of a kernel that has no SPIR-V."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        identity = self.text.encode() + b"\0" + self.data
        digest = hashlib.sha256(identity).hexdigest()
        object.__setattr__(self, "digest", digest)

    def with_prelude(self, *, uniform_binding: int | None) -> str:
        """Return the complete text. Parameters are in a uniform buffer at the given binding;
        without a binding, they are immediates.
        """
        variable = "var<immediate>"
        if uniform_binding is not None:
            variable = f"@group(0) @binding({uniform_binding}) var<uniform>"
        return _PRELUDE.format(variable=variable) + self.text
