"""Random kernels as WGSL: one-dimensional ones on 32-bit numbers."""

from __future__ import annotations

from gpu_executor.kernel.wgsl import WgslCode
from tests.support.random_kernels.description import Description, Expression, Place, Statement
from tests.support.random_kernels.expressions import AXES
from tests.support.random_kernels.parameters import find_filled, list_members

SCALARS = {"float": "f32", "int": "i32", "uint": "u32"}


def make_wgsl(kernel: Description) -> WgslCode:
    """The WGSL text of a kernel, and the names of its parameters."""
    names = [kernel.params[number].name for number in _list_words(kernel)]
    return WgslCode(write_wgsl(kernel), params=tuple(names))


def _list_words(kernel: Description) -> list[int]:
    """The parameters of the words behind the number of elements."""
    filled = find_filled(kernel)
    return [number for number in list_members(kernel) if number != filled]


def write_wgsl(kernel: Description) -> str:
    """The source text of a kernel."""
    lines = []
    for number, buffer in enumerate(kernel.buffers):
        access = "read" if buffer.role == "in" else "read_write"
        kind = spell(buffer.kind, buffer.width)
        lines.append(
            f"@group(0) @binding({number}) var<storage, {access}> b{number}: array<{kind}>;"
        )
    constants: list[int] = []
    body = [f"            {_write(kernel, each, constants)}" for each in kernel.statements]
    # Constant expressions that overflow are errors in WGSL; variables wrap around.
    lines += [f"var<private> k{at}: u32 = {value}u;" for at, value in enumerate(constants)]
    bound = f"arrayLength(&b{kernel.guarded_by})"
    if kernel.guard != "length":
        meanings = [each.meaning for each in kernel.params]
        bound = f"u32({_render_param(kernel, meanings.index(kernel.guard))})"
    lines += [
        "@compute @workgroup_size(work_group)",
        "fn main(@builtin(workgroup_id) group: vec3<u32>,",
        "        @builtin(num_workgroups) groups: vec3<u32>,",
        "        @builtin(local_invocation_index) local: u32) {",
        "    var i = first_element(group, groups, local);",
        "    for (var n = 0u; n < per_invocation; n++) {",
        f"        if (i < {bound}) {{",
        *body,
        "        }",
        "        i += work_group;",
        "    }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def spell(kind: str, width: int) -> str:
    return SCALARS[kind] if width == 1 else f"vec{width}<{SCALARS[kind]}>"


def _write(kernel: Description, statement: Statement, constants: list[int]) -> str:
    buffer = kernel.buffers[statement.buffer]
    value = _render(kernel, statement.value, statement.compute, buffer.width, constants)
    place = _render_place(kernel, statement.buffer, statement.place)
    written = f"b{statement.buffer}[{place}] = {spell(buffer.kind, buffer.width)}({value});"
    conditions = []
    if statement.skip is not None:
        conditions.append(f"i % {statement.skip[0]}u != {statement.skip[1]}u")
    if statement.when is not None:
        less, more = (
            _render(kernel, each, statement.compute, 1, constants) for each in statement.when
        )
        conditions.append(f"{less} < {more}")
    return f"if ({' && '.join(conditions)}) {{ {written} }}" if conditions else written


def _render(
    kernel: Description, node: Expression, compute: str, width: int, constants: list[int]
) -> str:
    name, operands = node[0], node[1:]
    if name in ("<<", ">>"):
        left = _render(kernel, operands[0], compute, width, constants)
        return f"({left} {name} {_convert(f'{operands[1][1]}u', 'uint', 1, width)})"
    if name in ("load", "param", "sign", "constant", "index", "length"):
        found, own = _render_leaf(kernel, node, constants)
        return _convert(found, compute, own, width)
    parts = [_render(kernel, each, compute, width, constants) for each in operands]
    if name in ("min", "max"):
        return f"{name}({parts[0]}, {parts[1]})"
    if name == "select":
        return f"select({parts[3]}, {parts[2]}, {parts[0]} < {parts[1]})"
    return f"({parts[0]} {name} {parts[1]})"


def _render_leaf(kernel: Description, node: Expression, constants: list[int]) -> tuple[str, int]:
    """A value and the number of its components."""
    name, first = node[0], node[1]
    if name == "load":
        found = f"b{first}[{_render_place(kernel, first, node[2])}]"
        component = node[4]
        own = kernel.buffers[first].width
        return (found, own) if component is None else (f"{found}.{AXES[component]}", 1)
    if name == "constant":
        constants.append(first)
        return f"k{len(constants) - 1}", 1
    if name == "param":
        return _render_param(kernel, first), 1
    if name == "sign":
        return f"(bitcast<u32>({_render_param(kernel, first)}) >> 31u)", 1
    if name == "index":
        return f"(i % {first}u)" if first else "i", 1
    return f"arrayLength(&b{first})", 1


def _convert(found: str, compute: str, own: int, width: int) -> str:
    """A value of `own` components as one of `width` components of a kind."""
    converted = f"{spell(compute, own)}({found})"
    return converted if own == width else f"{spell(compute, width)}({converted})"


def _render_param(kernel: Description, number: int) -> str:
    words, kind = _list_words(kernel), kernel.params[number].kind
    word = f"param({words.index(number) + 1}u)" if number in words else "param(0u)"
    return word if kind == "uint" else f"bitcast<{SCALARS[kind]}>({word})"


def _render_place(kernel: Description, buffer: int, place: Place) -> str:
    name, length = place[0], f"arrayLength(&b{buffer})"
    if name == "indirect":
        return f"b{place[1]}[i] % {length}"
    return {
        "same": "i",
        "reverse": f"{length} - 1u - i",
        "rotate": f"(i + {place[-1]}u) % {length}",
        "wrap": f"i % {length}",
        "half": f"(i / 2u) % {length}",
        "spread": f"{place[1] if name == 'spread' else 0}u * i + {place[-1]}u",
    }[name]
