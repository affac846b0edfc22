"""Random kernels as GLSL, compiled by glslc."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import Any

from gpu_executor.errors import SpirvError
from gpu_executor.spirv import read_interface
from tests.support.random_kernels.description import Buffer, Description, Statement
from tests.support.random_kernels.expressions import (
    AXES,
    render,
    render_array,
    render_element,
    render_length,
    render_name,
    render_place,
)
from tests.support.random_kernels.kinds import KINDS, Kind
from tests.support.random_kernels.work_groups import find_built_ins


def write_glsl(kernel: Description) -> str:
    """The source text of a kernel."""
    text = "\n".join([*_declare(kernel), *_write_helpers(kernel), *_write_main(kernel)]) + "\n"
    head = [f"#version {kernel.version}"]
    head += [f"#extension {name} : require" for name in _list_extensions(kernel)]
    return "\n".join([*head, text])


def compile_kernel(kernel: Description) -> tuple[Description, bytes]:
    """The SPIR-V of a kernel, and its description. `glslc -O` may remove what the code does not
    need, and with it arguments and parameters: such a kernel is not optimized."""
    code = compile_glsl(kernel)
    if kernel.optimize:
        plain = replace(kernel, optimize=False)
        unoptimized = compile_glsl(plain)
        if _list_interface(code) != _list_interface(unoptimized):
            return plain, unoptimized
    return kernel, code


def _list_interface(code: bytes) -> Any:
    try:
        interface = read_interface(code)
    except SpirvError as error:  # running the kernel shows whether that is right
        return str(error)
    accesses = [(each.binding, each.access) for each in interface.buffers]
    constants = [each.spec_id for each in interface.constants]
    return accesses, constants, interface.push_constant_bytes, interface.uniform is None


def compile_glsl(kernel: Description) -> bytes:
    """The SPIR-V of a kernel."""
    command = ["glslc", "-fshader-stage=compute", f"--target-env={kernel.target}"]
    command += ["-O"] if kernel.optimize else []
    source = write_glsl(kernel)
    done = subprocess.run(
        [*command, "-", "-o", "-"], input=source.encode(), capture_output=True, check=False
    )
    assert done.returncode == 0, f"{done.stderr.decode()}\n{source}"
    return done.stdout


def _list_extensions(kernel: Description) -> list[str]:
    found = {
        kind.storage for buffer in kernel.buffers for _, kind, _ in buffer.parts() if kind.storage
    }
    if any(buffer.packing == "scalar" for buffer in kernel.buffers):
        found.add("GL_EXT_scalar_block_layout")
    used = {statement.compute for statement in kernel.statements}
    used |= {parameter.kind for parameter in kernel.params}
    used |= {kernel.tile.compute} if kernel.tile is not None else set()
    if "subgroups" in find_built_ins(kernel):
        found.add("GL_KHR_shader_subgroup_basic")
    found |= {KINDS[name].arithmetic for name in used if KINDS[name].arithmetic}
    for statement in kernel.statements:
        kind = kernel.buffers[statement.buffer].scalar
        if statement.atomic and kind.bits == 64:
            found.add("GL_EXT_shader_atomic_int64")
        if statement.atomic and kind.is_float:
            found.add("GL_EXT_shader_atomic_float")
        if kernel.subgroup and kind.bits == 64:
            found.add("GL_EXT_shader_subgroup_extended_types_int64")
    if kernel.subgroup:
        found |= {"GL_KHR_shader_subgroup_basic", "GL_KHR_shader_subgroup_arithmetic"}
    return sorted(found)


# --- declarations ---


def _declare(kernel: Description) -> list[str]:
    sizes = [
        f"local_size_{axis} = {size}" if spec_id is None else f"local_size_{axis}_id = {spec_id}"
        for axis, size, spec_id in zip("xyz", kernel.local, kernel.local_ids, strict=True)
        if size != 1 or spec_id is not None or axis == "x"
    ]
    lines = [f"layout({', '.join(sizes)}) in;"]
    if kernel.size_default:
        size = f"const uint S0 = {kernel.size_default}u;"
        lines.append(f"layout(constant_id = {kernel.local_ids[0]}) {size}")
    lines += [
        f"layout(constant_id = {spec_id}) const {kind} S{spec_id} = {kind}({default});"
        for spec_id, kind, default, _ in kernel.constants
    ]
    lines += _declare_params(kernel)
    for number, buffer in enumerate(kernel.buffers):
        lines += _declare_buffer(number, buffer)
    if kernel.tile is not None:
        lines.append(f"shared {kernel.tile.compute} tile[{_render_tile_size(kernel)}];")
    return lines


def _declare_params(kernel: Description) -> list[str]:
    lines = []
    for block, where, name in (
        ("push", "push_constant, std430", "pushed"),
        ("uniform", f"set = 0, binding = {kernel.uniform_binding}, std140", "values"),
    ):
        members = [
            f"{KINDS[each.kind].spell(each.width)} {each.name}"
            + ("" if each.length is None else f"[{each.length.text}]")
            for each in kernel.params
            if each.block == block
        ]
        instance = f" {name}" if kernel.instances else ""
        if members:
            inner = " ".join(f"{each};" for each in members)
            lines.append(f"layout({where}) uniform {block.capitalize()} {{ {inner} }}{instance};")
    return lines


def _declare_block(number: int, buffer: Buffer) -> str:
    inner = " ".join(
        f"{KINDS[m.kind].spell(m.width)} {m.name}"
        + ("" if m.length is None else f"[{m.length.text}]")
        + ";"
        for m in buffer.members
    )
    return (
        f"layout(set = 0, binding = {buffer.binding}, std430) {buffer.qualifiers} buffer "
        f"Block{number} {{ {inner} }} s{number};"
    )


def _declare_buffer(number: int, buffer: Buffer) -> list[str]:
    lines = []
    if buffer.block:
        return [_declare_block(number, buffer)]
    if buffer.members:
        inner = " ".join(f"{KINDS[m.kind].spell(m.width)} {m.name};" for m in buffer.members)
        kind = f"Element{number}"
        lines.append(f"struct {kind} {{ {inner} }};")
    elif buffer.columns:
        prefix = "dmat" if buffer.kind == "double" else "mat"
        kind = f"{prefix}{buffer.columns}x{buffer.width}"
    else:
        kind = buffer.scalar.spell(buffer.width)
    length = "" if not buffer.sized else buffer.fixed if not buffer.spelled else buffer.spelled.text
    instance = f" s{number}" if buffer.instance else ""
    lines.append(
        f"layout(set = 0, binding = {buffer.binding}, {buffer.packing}) {buffer.qualifiers} buffer "
        f"Block{number} {{ {kind} b{number}[{length}]; }}{instance};"
    )
    return lines


# --- functions ---


def _write_helpers(kernel: Description) -> list[str]:
    lines = []
    for number, buffer in enumerate(kernel.buffers if kernel.helpers else ()):
        for part, (_, kind, width) in enumerate(buffer.parts()):
            element = render_element(kernel, number, part, "at")
            wide = _widen(kind).spell(width)
            if buffer.loads:
                lines.append(f"{wide} load{number}_{part}(uint at) {{ return {wide}({element}); }}")
            if any(one.buffer == number and not one.atomic for one in kernel.statements):
                lines.append(
                    f"void store{number}_{part}(uint at, {wide} v) "
                    f"{{ {element} = {kind.spell(width)}(v); }}"
                )
    dots = {tuple(found) for found in re.findall(r"dot(\d+)_(\d+)\(", _write_statements(kernel))}
    for a, b in sorted(dots):
        compute = kernel.statements[0].compute
        left, right = render_array(kernel, int(a)), render_array(kernel, int(b))
        lines += [
            f"{compute} dot{a}_{b}(uint x, uint y) {{",
            f"    uint inner = {render_length(kernel, int(a))} / {_render_extent(kernel, 1)};",
            f"    {compute} sum = {compute}(0);",
            "    for (uint k = 0; k < inner; ++k)",
            f"        sum += {compute}({left}[y * inner + k])",
            f"             * {compute}({right}[k * {_render_extent(kernel, 0)} + x]);",
            "    return sum;",
            "}",
        ]
    return lines


def _widen(kind: Kind) -> Kind:
    return KINDS[kind.wide] if kind.wide else kind


def _render_extent(kernel: Description, axis: int) -> str:
    """The domain's extent along an axis."""
    for number, parameter in enumerate(kernel.params):
        if parameter.meaning == "extent":
            return f"{render_name(kernel, number)}.{AXES[axis]}"
        if parameter.meaning == f"extent{axis}":
            return render_name(kernel, number)
    return f"S{20 + axis}"


def _render_bound(kernel: Description) -> str:
    """The number of invocations that have an element."""
    if kernel.guard in ("count", "n"):
        meanings = [each.meaning for each in kernel.params]
        return render_name(kernel, meanings.index(kernel.guard))
    return render_length(kernel, kernel.guarded_by)


def _write_main(kernel: Description) -> list[str]:
    lines = ["void main() {"]
    body = _write_statements(kernel)
    if kernel.rank > 1:
        names = AXES[: kernel.rank]
        for axis, name in enumerate(names):
            lines.append(f"    uint {name} = gl_GlobalInvocationID.{name};")
            lines.append(f"    uint e{name} = {_render_extent(kernel, axis)};")
        outside = " || ".join(f"{name} >= e{name}" for name in names)
        index = "(z * ey + y) * ex + x" if kernel.rank == 3 else "y * ex + x"
        lines += [f"    if ({outside}) return;", f"    uint i = {index};", body]
    elif kernel.loop:
        step = "gl_NumWorkGroups.x * gl_WorkGroupSize.x"
        loop = f"uint i = gl_GlobalInvocationID.x; i < {_render_bound(kernel)}; i += {step}"
        lines.append(f"    for ({loop}) {{\n{body}\n    }}")
    else:
        index = (
            "gl_GlobalInvocationID.x",
            "gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationID.x",
            "gl_WorkGroupID.x * gl_WorkGroupSize.x + gl_LocalInvocationIndex",
        )[kernel.index_style]
        lines.append(f"    uint i = {index};")
        if kernel.tile is not None:
            lines += [f"    uint bound = {_render_bound(kernel)};", "    bool inside = i < bound;"]
            lines += [*_write_tile(kernel), f"    if (inside) {{\n{body}\n    }}"]
        elif kernel.guard == "none":
            lines.append(body)
        elif kernel.index_style == 0:
            lines += [f"    if (i >= {_render_bound(kernel)}) return;", body]
        else:
            lines.append(f"    if (i < {_render_bound(kernel)}) {{\n{body}\n    }}")
    return [*lines, "}"]


def _write_statements(kernel: Description) -> str:
    return "\n".join(f"        {_write_statement(kernel, each)}" for each in kernel.statements)


def _write_statement(kernel: Description, statement: Statement) -> str:
    buffer = kernel.buffers[statement.buffer]
    _, kind, width = buffer.parts()[statement.part]
    compute = KINDS[statement.compute]
    value = render(kernel, statement.value, compute, width)
    if compute.wide:
        # glslc declares the capability for narrow arithmetic for an addition, but not for a
        # minimum or maximum alone.
        value = f"{compute.spell(width)}({value} + {compute.spell(width)}(0))"
    place = render_place(kernel, statement.buffer, statement.place, statement.part)
    element = render_element(kernel, statement.buffer, statement.part, place)
    wide = f"{_widen(kind).spell(width)}({value})"
    if statement.atomic:
        operation = f"atomic{statement.atomic.capitalize()}"
        if kernel.subgroup:
            written = (
                f"{{ {kind.name} sum = subgroupAdd({wide}); "
                f"if (subgroupElect()) {operation}({element}, sum); }}"
            )
        else:
            written = f"{operation}({element}, {wide});"
    elif kernel.helpers:
        written = f"store{statement.buffer}_{statement.part}({place}, {wide});"
    else:
        converted = f"{kind.spell(width)}({wide})" if kind.wide else wide
        written = f"{element} = {converted};"
    conditions = []
    if buffer.is_bounded and not statement.atomic:
        conditions.append(f"i < {render_length(kernel, statement.buffer, statement.part)}")
    if statement.when is not None:
        less, more = (render(kernel, each, compute, 1) for each in statement.when)
        conditions.append(f"{less} < {more}")
    if statement.place == ["group"]:
        conditions.append("gl_LocalInvocationID.x == 0u")
    elif statement.skip is not None:
        conditions.append(f"i % {statement.skip[0]}u != {statement.skip[1]}u")
    return f"if ({' && '.join(conditions)}) {written}" if conditions else written


def _render_tile_size(kernel: Description) -> str:
    """The work-group size; any number where nobody says it, because the kernel is refused."""
    return "S0" if kernel.size_default else f"{kernel.local[0] or 64}u"


_SYNC = "memoryBarrierShared(); barrier();"


def _write_tile(kernel: Description) -> list[str]:
    tile = kernel.tile
    assert tile is not None
    kind, size = tile.compute, _render_tile_size(kernel)
    value = render(kernel, tile.value, KINDS[kind], 1)
    lines = [
        "    uint lane = gl_LocalInvocationID.x;",
        f"    uint base = gl_WorkGroupID.x * {size};",
        f"    uint filled = bound > base ? min({size}, bound - base) : 0u;",
        f"    tile[lane] = {kind}(0);",
        f"    if (inside) tile[lane] = {value};",
        f"    {_SYNC}",
    ]
    if tile.operation == "reverse":
        result = "tile[inside ? filled - 1u - lane : lane]"
    elif tile.operation == "sum":
        lines.append(f"    for (uint s = {size} / 2u; s > 0u; s /= 2u) {{")
        lines.append(f"        if (lane < s) tile[lane] += tile[lane + s]; {_SYNC} }}")
        result = "tile[0]"
    elif tile.operation == "scan":
        lines.append(f"    for (uint s = 1u; s < {size}; s *= 2u) {{")
        lines.append(f"        {kind} before = lane >= s ? tile[lane - s] : {kind}(0); {_SYNC}")
        lines.append(f"        tile[lane] += before; {_SYNC} }}")
        result = "tile[lane]"
    else:
        lines.append(f"    for (uint r = 0u; r < {size}; ++r) {{")
        lines.append("        uint a = 2u * lane + (r & 1u);")
        lines.append("        if (a + 1u < filled && tile[a] > tile[a + 1u]) {")
        lines.append(f"            {kind} swap = tile[a]; tile[a] = tile[a + 1u];")
        lines.append(f"            tile[a + 1u] = swap; }} {_SYNC} }}")
        result = "tile[lane]"
    return [*lines, f"    {kind} t = {result};"]
