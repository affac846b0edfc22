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
import struct
from collections.abc import Iterable, Mapping
from string import Template

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import KernelError
from gpu_executor.primes.prime import WORD_BITS, LimbLayout, Prime
from gpu_executor.wgsl import WgslCode

Row = Mapping[str, int | str]

REDUCTION_BLOCK = 4096
"""Elements that one dispatch of a reduction reduces to one value; as in glsl/reduce.glsl."""
REDUCTION_INVOCATIONS = 256
REDUCTIONS = ("sum", "min", "max")
QUAD = 4
"""Elements of a vec4, which vector sums load and store."""
MATRIX_TILE = 16
"""Rows and columns of the tile of a matrix product that one work-group computes."""
LIMB_BITS = 13
"""The width of limbs in products; wgsl/limbs.wgsl explains it."""
LIMBS_WITHOUT_CARRY = 32
"""2^32 / (2 * 2^26): with up to this many 13-bit limbs, a product needs no carry before the end."""

_FIELD_PARTS = {
    "add": ("field_sum", "field_reduce_once"),
    "sub": ("field_difference",),
    "mul": ("field_product", "field_reduce_once"),
}
_TYPES = {"uint32": "u32", "float32": "f32"}
_SECTION = re.compile(r"^ *//repeat (\w+)\n(.*?)^ *//end\n", re.MULTILINE | re.DOTALL)
_COMMENTS = re.compile(r"^ *//(?!repeat |end\n).*\n|^\n", re.MULTILINE)


def render_vector_add(dtype: npt.DTypeLike) -> WgslCode:
    """Render c[i] = a[i] + b[i] for uint32 or float32."""
    return _render_vector_add(_get_type_name(dtype))


def render_field_operation(prime: Prime, operation: str) -> WgslCode:
    """Render the sum, difference or Montgomery product modulo a prime, with a status word.

    The data are the words of the modulus and, for "mul", -1/p mod 2^13.
    """
    if operation not in _FIELD_PARTS:
        raise KernelError(
            f"there is no field operation {operation!r}; "
            f"the operations are {', '.join(_FIELD_PARTS)}"
        )
    data = prime.modulus_words
    if operation == "mul":
        data += (_cover_words(prime.words).negative_inverse(prime.modulus),)
    text = _render_field(prime.words, operation)
    return WgslCode(text, struct.pack(f"<{len(data)}I", *data), padded=True)


def render_reduction(operation: str, dtype: npt.DTypeLike) -> WgslCode:
    """Render the sum, minimum or maximum of each block of 4096 elements; dispatch it until one
    value is left.

    A work-group has 256 invocations whatever the plan chooses, and any number of work-groups
    reduces all blocks. Minimum and maximum are NaN if any element is NaN.
    """
    if operation not in REDUCTIONS:
        raise KernelError(
            f"there is no reduction {operation!r}; the reductions are {', '.join(REDUCTIONS)}"
        )
    return _render_reduction(operation, _get_type_name(dtype))


def render_matrix_product(dtype: npt.DTypeLike) -> WgslCode:
    """Render a @ b in row-major order for uint32 (modulo 2^32) or float32; the data are m, n and k.

    A work-group has 16 x 16 invocations. The grid's x covers the columns of the product, its y the
    rows.
    """
    return _render_matrix_product(_get_type_name(dtype))


@functools.cache
def _render_vector_add(type_: str) -> WgslCode:
    return WgslCode(
        _render(_load_template("vector_add"), {"type": type_}), packed=QUAD, padded=True
    )


@functools.cache
def _render_reduction(operation: str, type_: str) -> WgslCode:
    values: Row = {
        "operation": _load_template(f"reduce_{operation}_{type_}"),
        # Minimum and maximum compare the bit patterns of floats, so they load them as u32.
        "type": type_ if operation == "sum" else "u32",
        "block": REDUCTION_BLOCK,
        "invocations": REDUCTION_INVOCATIONS,
    }
    return WgslCode(_render(_load_template("reduce"), values))


@functools.cache
def _render_matrix_product(type_: str) -> WgslCode:
    return WgslCode(_render(_load_template("matrix_product"), {"type": type_, "tile": MATRIX_TILE}))


@functools.cache
def _render_field(words: int, operation: str) -> str:
    body = "".join(_load_template(part) for part in _FIELD_PARTS[operation])
    whole = _load_template("field").replace("\n$operation", "\n" + body)
    if operation == "mul":
        whole = _load_template("limbs") + whole
    limbs = _cover_words(words)
    in_quads = words % 4 == 0
    values: Row = {
        "words": words,
        "stored": "vec4<u32>" if in_quads else "u32",
        "quads": words // 4,
        "limbs": limbs.count,
        "bits": limbs.bits,
        "mask": (1 << limbs.bits) - 1,
        "shift": limbs.shift,
        "negative_inverse": words + 1,
        "half": (limbs.count + 1) // 2,
    }
    each_word = [{"w": word, "parameter": word + 1} for word in range(words)]
    carries = limbs.count > LIMBS_WITHOUT_CARRY
    sections: Mapping[str, Iterable[Row]] = {
        "word": each_word,
        "quad": _list_quads(words) if in_quads else [],
        "single": [] if in_quads else each_word,
        "limb": [_locate_limb(limbs, words, limb) for limb in range(limbs.count)],
        "upper_limb": [{"i": limb, "below": limb - 1} for limb in range(2, limbs.count)],
        "midway": [{}] if carries else [],
        "midway_carry": [
            {"i": limb, "next": limb + 1} for limb in range(limbs.count - 2 if carries else 0)
        ],
    }
    return _render(whole, values, sections)


def _cover_words(words: int) -> LimbLayout:
    return LimbLayout.covering(words, LIMB_BITS)


def _list_quads(words: int) -> list[Row]:
    return [
        {"q": quad} | {f"w{within}": 4 * quad + within for within in range(4)}
        for quad in range(words // 4)
    ]


def _locate_limb(limbs: LimbLayout, words: int, limb: int) -> Row:
    """Return the words and bit offset of a limb, in an element and in b shifted left."""
    word, offset = divmod(limb * limbs.bits, WORD_BITS)
    shifted_word, shifted_offset = divmod(limb * limbs.bits - limbs.shift, WORD_BITS)

    def name(array: str, word: int) -> str:
        return f"{array}{word}" if 0 <= word < words else "none"

    return {
        "i": limb,
        "word": word,
        "word_above": word + 1,
        "offset": offset,
        "back": WORD_BITS - 1 - offset,
        "shifted_offset": shifted_offset,
        "a_low": name("a", word),
        "a_high": name("a", word + 1),
        "p_low": name("p", word),
        "p_high": name("p", word + 1),
        "b_low": name("b", shifted_word),
        "b_high": name("b", shifted_word + 1),
    }


def _get_type_name(dtype: npt.DTypeLike) -> str:
    name = np.dtype(dtype).name
    if name not in _TYPES:
        raise KernelError(f"WGSL kernels exist for uint32 and float32, not for {name}")
    return _TYPES[name]


def _load_template(name: str) -> str:
    from importlib import resources

    return (resources.files(__package__) / "wgsl" / f"{name}.wgsl").read_text()


def _render(template: str, values: Row, sections: Mapping[str, Iterable[Row]] | None = None) -> str:
    """Drop the comments of a template, repeat its lines and substitute its values."""

    def repeat(found: re.Match[str]) -> str:
        lines = Template(found[2])
        return "".join(lines.substitute(values, **row) for row in (sections or {})[found[1]])

    # An operation is a value that has comments, so comments are dropped again at the end.
    repeated = _SECTION.sub(repeat, _COMMENTS.sub("", template))
    return _COMMENTS.sub("", Template(repeated).substitute(values))
