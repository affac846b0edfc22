"""WGSL: a kernel's code for WebGPU, and the prelude that precedes every kernel's text.

The contract is that of SPIR-V kernels (`kernel.py`), in WebGPU's terms:

- Storage buffers of group 0: argument i at binding i, then the scratch buffer and the status word
  if the kernel declares them. Inputs are `var<storage, read>`, all others
  `var<storage, read_write>`. The entry point is `main`.
- Each buffer has exactly the size of its array, so `arrayLength` is the number of elements. WebGPU
  binds multiples of four bytes: up to three zero bytes follow an array of smaller elements.
- `param(0u)` is the number of elements; `param(1u)` and so on are the words of `push`, its bytes
  and then what its function returns, then the parameters of the call. They are immediates if the
  device has them, else a uniform buffer. Every number of a parameter is one word, in the order of
  the members. 64-bit numbers are two words, the lower half first; 8- and 16-bit numbers are
  extended to 32 bits. A text reads a float as `bitcast<f32>(param(1u))`. Which texts
  show the type of a word is said in `kernel/wgsl_words.py`; where they do not, `params=` declares
  it.
- Without `grid=`, the entry point has `@workgroup_size(work_group)`. The executor chooses that
  size for kernels with split="elements" and for texts that use `per_invocation`: no result may
  depend on it. For others it is the kernel's `work_group=`, or 64.
- `first_element(group, groups, local)` is the index of an invocation's first element. The
  invocation processes `per_invocation` elements at a distance of `work_group`. A text without
  `per_invocation` processes one element, at the index `first_element` or, as long as the
  work-groups fit one dimension, at `global_invocation_id.x`.
- With `grid=`, `work_group` is the kernel's `work_group=`, or 64.

The texts of this package may opt out of exact sizes (`padded`). With `packed`, indices count
vectors of that many elements, and every buffer is padded to whole vectors.

The prelude defines these names and `params`; a text must not. Directives such as `enable f16;`
stand at the beginning of a text.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import field
from typing import NamedTuple

from gpu_executor.common.lean_dataclass import dataclass

PARAMETER_WORDS = 32
"""Words of parameters: 128 bytes, the size of immediates on devices that have them."""
PARAMETER_BYTES = 4 * PARAMETER_WORDS
DEFAULT_WORK_GROUP = 64

_PRELUDE = """\
struct Params {{ words: array<vec4<u32>, 8> }}
{variable} params: Params;
override work_group: u32 = {work_group}u;
override per_invocation: u32 = 1u;
fn param(i: u32) -> u32 {{ return params.words[i / 4u][i % 4u]; }}
fn first_element(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {{
    return (group.y * groups.x + group.x) * (work_group * per_invocation) + local;
}}
"""
PRELUDE_LINES = _PRELUDE.count("\n")
_COMMENT = re.compile(r"//[^\n\v\f\r\x85\u2028\u2029]*|/\*")
_BLOCK_MARK = re.compile(r"/\*|\*/")
_DIRECTIVES = re.compile(r"(?:\s*(?:enable|requires|diagnostic)\b[^;]*;)*")
_WORK_GROUP = re.compile(
    r"@workgroup_size\s*\(([^)]*)\)(?:\s*@\w+\s*(?:\([^)]*\))?)*\s*fn\s+main\b"
)
_STORAGE_VARIABLE = re.compile(
    r"((?:@\w+\s*\([^)]*\)\s*)+)var\s*<\s*storage\s*(?:,\s*(\w+)\s*)?>\s*\w+\s*:\s*([^;]+);"
)
_BINDING = re.compile(r"@binding\s*\(\s*(\d+)[iu]?\s*\)")
_INTEGER = re.compile(r"\b(?:[iu](?:32|64)|vec[234][iu])\b")
_SHORT_TYPE = re.compile(r"(?:vec[234]|mat[234]x[234])([fh])")
_FLOATS = {"f16": "f2", "f32": "f4", "f64": "f8", "h": "f2", "f": "f4"}
_CONSTANT = r"\bconst\s+{name}\s*(?::\s*\w+\s*)?=\s*(\d+)[iu]?\s*;"


class StorageVariable(NamedTuple):
    """A storage buffer that a text declares."""

    binding: int
    writable: bool
    float_dtype: str | None
    """The dtype of its numbers if they are floats; None if they are not, or if the type has a name
    of the text's own."""
    has_integers: bool
    """Whether the text says that its numbers are integers."""


@dataclass(frozen=True, slots=True)
class WgslCode:
    """The text of one kernel without the prelude, and its data."""

    text: str
    data: bytes = b""
    packed: int = 1
    """Elements per vector that an invocation loads: 4 if the text works on `vec4`."""
    params: tuple[str, ...] = ()
    """The names of the parameters of a kernel that has no SPIR-V."""
    param_types: tuple[tuple[str, str], ...] = ()
    """The types that are declared for some of these names, sorted by name."""
    padded: bool = False
    """Whether buffers may be larger than the arrays: the text finds the end of its arrays with
    `param(0u)` alone. Tasks of all sizes can then use one bind group. Creating one takes 45 us with
    wgpu-py 0.32."""
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
        prelude = _PRELUDE.format(variable=variable, work_group=DEFAULT_WORK_GROUP)
        directives, text = self._split_directives()
        return directives + prelude + text

    def uses(self, name: str) -> bool:
        """Return whether the text uses an identifier."""
        return re.search(rf"\b{name}\b", self.blank_comments()) is not None

    def find_work_group(self) -> tuple[int | str, ...]:
        """Return the arguments of the entry point's `@workgroup_size`: numbers where the text says
        them, else the expressions. Empty if there is no such attribute.
        """
        code = self.blank_comments()
        found = _WORK_GROUP.search(code)
        if found is None:
            return ()
        return tuple(_evaluate(each.strip(), code) for each in found[1].split(",") if each.strip())

    def find_storage_variables(self) -> list[StorageVariable]:
        """Return the storage buffers that the text declares, with what it says about them."""
        found = []
        for attributes, access, type_ in _STORAGE_VARIABLE.findall(self.blank_comments()):
            binding = _BINDING.search(attributes)
            if binding is not None:
                number, writable = int(binding[1]), access == "read_write"
                float_dtype, integers = _find_float_dtype(type_), bool(_INTEGER.search(type_))
                found.append(StorageVariable(number, writable, float_dtype, integers))
        return found

    def _split_directives(self) -> tuple[str, str]:
        """Return the directives at the beginning of the text, and the text with the same number of
        lines without them.
        """
        code = self.blank_comments()
        found = _DIRECTIVES.match(code)
        end = 0 if found is None else found.end()
        if not code[:end].strip():
            return "", self.text
        blank = "\n" * code[:end].count("\n")
        return " ".join(code[:end].split()) + " ", blank + self.text[end:]

    def blank_comments(self) -> str:
        """Return the text with spaces for its comments, so that every position stays the same.
        Block comments may contain others."""
        parts, at = [], 0
        while (found := _COMMENT.search(self.text, at)) is not None:
            end = found.end() if found[0] != "/*" else _find_block_end(self.text, found.end())
            comment = re.sub(r"[^\n]", " ", self.text[found.start() : end])
            parts += [self.text[at : found.start()], comment]
            at = end
        return "".join([*parts, self.text[at:]])


def _find_block_end(text: str, at: int) -> int:
    """Return the end of a block comment whose inside begins at this position."""
    depth = 1
    while depth and (mark := _BLOCK_MARK.search(text, at)) is not None:
        depth += 1 if mark[0] == "/*" else -1
        at = mark.end()
    return len(text) if depth else at


def _find_float_dtype(type_: str) -> str | None:
    """Return the dtype of a type's numbers if they are floats: "f4" for `array<vec4<f32>>`."""
    for name in re.findall(r"[A-Za-z_]\w*", type_):
        if not re.fullmatch(r"array|vec[234]|mat[234]x[234]|atomic", name):
            short = _SHORT_TYPE.fullmatch(name)
            return _FLOATS.get(short[1] if short else name)
    return None


def _evaluate(expression: str, code: str) -> int | str:
    """Return the value of a number or of a `const` that is one; else the expression."""
    constant = re.search(_CONSTANT.format(name=re.escape(expression)), code)
    number = re.fullmatch(r"(\d+)[iu]?", constant[1] if constant else expression)
    return expression if number is None else int(number[1])
