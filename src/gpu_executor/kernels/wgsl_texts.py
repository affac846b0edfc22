"""The WGSL texts of the kernels, rendered from the templates `wgsl/*.wgsl`.

WGSL has no preprocessor, and pipeline constants cannot size arrays, so the texts are templates:
`$name` stands for a value, and the lines from `//repeat name` to `//end` are repeated for each row
of values under that name. Comments explain the templates; a rendered text has none.

`string.Template` and one regular expression are enough for this. Jinja2 would replace about fifteen
lines (`_render`), but every program that loads a kernel would import it. That import takes about 40
ms; rendering the first text takes about 10 ms.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from string import Template

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError
from gpu_executor.kernel.wgsl import WgslCode
from gpu_executor.kernels.modules import read_data

Row = Mapping[str, int | str]

REDUCTION_BLOCK = 4096
"""Elements that a reduction by blocks reduces to one value; as in glsl/reduce.glsl."""
REDUCTION_INVOCATIONS = 256
REDUCTIONS = ("sum", "min", "max")
QUAD = 4
"""Elements of a vec4, which vector sums load and store."""
MATRIX_TILE = 128
"""Rows and columns of the largest tile of a matrix product that a work-group computes; as in
glsl/matmul.glsl."""
MATRIX_DEPTH = 8
"""Columns of one matrix, and rows of the other, that a tile processes at a time."""
MATRIX_INVOCATIONS = 256

_TYPES = {"uint32": "u32", "float32": "f32"}
_SECTION = re.compile(r"^ *//repeat (\w+)\n(.*?)^ *//end\n", re.MULTILINE | re.DOTALL)
_COMMENTS = re.compile(r"^ *//(?!repeat |end\n).*\n|^\n", re.MULTILINE)


def render_vector_add(dtype: npt.DTypeLike) -> WgslCode:
    """Render c[i] = a[i] + b[i] for uint32 or float32."""
    return _render_vector_add(_get_type_name(dtype))


def render_reduction(operation: str, dtype: npt.DTypeLike, *, by_block: bool = False) -> WgslCode:
    """Render the sum, minimum or maximum of all elements, or with `by_block` of each block of 4096
    elements.

    A work-group has 256 invocations whatever the plan chooses. Any number of work-groups reduces
    all blocks; without `by_block` they are in one dimension, and their number determines the order
    of the operations. Minimum and maximum are NaN if any element is NaN.
    """
    if operation not in REDUCTIONS:
        raise KernelError(
            f"there is no reduction {operation!r}; the reductions are {', '.join(REDUCTIONS)}"
        )
    return _render_reduction(operation, _get_type_name(dtype), by_block)


def render_matrix_product(dtype: npt.DTypeLike) -> WgslCode:
    """Render a @ b in row-major order for uint32 (modulo 2^32) or float32.

    The data are m, n, k, the rows and the columns of a tile, and the depth of a slice, as
    `matmul.plan_product` chooses them with the grid. A work-group has 256 invocations.
    """
    return _render_matrix_product(_get_type_name(dtype))


@functools.cache
def _render_vector_add(type_: str) -> WgslCode:
    return WgslCode(
        _render(_load_template("vector_add"), {"type": type_}), packed=QUAD, padded=True
    )


@functools.cache
def _render_reduction(operation: str, type_: str, by_block: bool) -> WgslCode:
    values: Row = {
        "operation": _load_template(f"reduce_{operation}_{type_}"),
        # Minimum and maximum compare the bit patterns of floats, so they load them as u32.
        "type": type_ if operation == "sum" else "u32",
        "block": REDUCTION_BLOCK,
        "invocations": REDUCTION_INVOCATIONS,
    }
    return WgslCode(_render(_load_template("reduce_by_block" if by_block else "reduce"), values))


@functools.cache
def _render_matrix_product(type_: str) -> WgslCode:
    large: Row = {
        "name": "compute_large_tile",
        "rows": "LARGE_TILE",
        "columns": "LARGE_TILE",
        "blocks": 2,
        "x": "local % 8u + local / 32u % 2u * 8u",
        "y": "local / 8u % 4u + local / 64u * 4u",
    }
    small: Row = {
        "name": "compute_small_tile",
        "rows": "task.tile_rows",
        "columns": "task.tile_columns",
        "blocks": 1,
        "x": "local % (task.tile_columns / 4u)",
        "y": "local / (task.tile_columns / 4u)",
    }
    values: Row = {
        "type": type_,
        "invocations": MATRIX_INVOCATIONS,
        "depth": MATRIX_DEPTH,
        "large_tile": MATRIX_TILE,
        "large_tile_function": _render_tile(type_, large),
        "small_tile_function": _render_tile(type_, small),
    }
    return WgslCode(_render(_load_template("matrix_product"), values))


def _render_tile(type_: str, values: Row) -> str:
    """Render the function that computes a tile; an invocation has blocks x blocks of 4 x 4."""
    blocks = int(values["blocks"])
    rows: list[Row] = [
        {
            "i": row,
            "block": row // 4,
            "within": row % 4,
            "second": f"panels[y * b_stride + x_step + x] = sum{row}_1;" if blocks > 1 else "",
        }
        for row in range(4 * blocks)
    ]
    sums: list[Row] = [
        {"i": row, "j": block, "block": row // 4, "component": "xyzw"[row % 4]}
        for row in range(4 * blocks)
        for block in range(blocks)
    ]
    sections: Mapping[str, Iterable[Row]] = {
        "load": [{"i": i} for i in range(MATRIX_TILE * MATRIX_DEPTH // MATRIX_INVOCATIONS)],
        "block": [{"i": i} for i in range(blocks)],
        "row": rows,
        "sum": sums,
    }
    return _render(_load_template("matrix_tile"), {"type": type_} | dict(values), sections)


def _get_type_name(dtype: npt.DTypeLike) -> str:
    name = np.dtype(dtype).name
    if name not in _TYPES:
        raise KernelError(f"WGSL kernels exist for uint32 and float32, not for {name}")
    return _TYPES[name]


def _load_template(name: str) -> str:
    return read_data("wgsl", f"{name}.wgsl").decode()


def _render(template: str, values: Row, sections: Mapping[str, Iterable[Row]] | None = None) -> str:
    """Drop the comments of a template, repeat its lines and substitute its values."""

    def repeat(found: re.Match[str]) -> str:
        lines = Template(found[2])
        return "".join(lines.substitute(values, **row) for row in (sections or {})[found[1]])

    # An operation is a value that has comments, so comments are dropped again at the end.
    repeated = _SECTION.sub(repeat, _COMMENTS.sub("", template))
    return _COMMENTS.sub("", Template(repeated).substitute(values))
