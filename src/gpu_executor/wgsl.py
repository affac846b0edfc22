"""WGSL: a kernel's code for WebGPU, and what every kernel finds in front of its own text.

The contract is that of SPIR-V kernels (`kernel.py`) in WebGPU's words:

- Storage buffers of group 0: the inputs at bindings 0, 1, ..., then the outputs, then the status
  word if the kernel declares one. The entry point is `main`, its work-group size
  `@workgroup_size(work_group)`.
- `param(0u)` is the number of elements, `param(1u)` and so on are the words of the code's own
  `data`. They are immediates or a uniform buffer, as the device has it.
- `first_element(group, groups, local)` is where an invocation begins; it takes `per_invocation`
  elements, `work_group` apart. A text that says so (`at_once`) counts in vectors of so many
  elements instead; every buffer has room for whole ones.

These names, and `params`, are taken.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

PARAMETER_WORDS = 32
"""What both immediates (128 bytes where there are any) and uniform buffers have room for."""

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
    """The text of one kernel, without its prelude, and the words that it finds as data."""

    text: str
    data: bytes = b""
    at_once: int = 1
    """How many elements one step of an invocation takes: 4 where the text works on `vec4`."""
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        identity = self.text.encode() + b"\0" + self.data
        digest = hashlib.sha256(identity).hexdigest()
        object.__setattr__(self, "digest", digest)

    def whole(self, *, uniform_at: int | None) -> str:
        """The text with its prelude: parameters as immediates, or as a uniform at a binding."""
        variable = "var<immediate>"
        if uniform_at is not None:
            variable = f"@group(0) @binding({uniform_at}) var<uniform>"
        return _PRELUDE.format(variable=variable) + self.text
