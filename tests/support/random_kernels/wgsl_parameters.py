"""Kernels of WGSL alone, whose parameters have every type and reach their use in odd ways.

A type that the text shows is read from it: what becomes a float right away, or through names. Every
other one must be declared in `params=`; without that the kernel is refused, never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.kernel.declaration import Split
from tests.support.random_kernels.outcomes import REFUSALS
from tests.support.random_kernels.runs import Tally

Array = npt.NDArray[Any]
DTYPES = {"f32": "f4", "i32": "i4", "u32": "u4"}
CAST = {"f32": "bitcast<f32>({})", "i32": "bitcast<i32>({})", "u32": "u32({})"}
SHOWN = ("direct", "let", "var", "spaces")
"""Ways that a reader of the text follows."""
WAYS: dict[str, tuple[str, str, str]] = {
    # What stands before main, what begins main, and the word itself.
    "direct": ("", "", "param({k}u)"),
    "let": ("", "let w{k} = param({k}u);", "w{k}"),
    "var": ("", "var w{k} = param({k}u);", "w{k}"),
    "spaces": ("", "let w{k}: u32 =\n param ( {k}u ) ; // param(0u)", "w{k}"),
    "parentheses": ("", "", "(param(({k}u)))"),
    "argument": ("fn cast{k}(w: u32) -> {t} {{ return {cast}; }}", "", "cast{k}(param({k}u))"),
    "result": ("fn get{k}() -> u32 {{ return param({k}u); }}", "", "get{k}()"),
    "vector": ("", "let v{k} = vec2<u32>(param(0u), param({k}u));", "v{k}.y"),
    "array": ("", "var a{k} = array<u32, 2>(param({k}u), 7u);", "a{k}[0]"),
    "struct": ("struct S{k} {{ a: u32, b: u32 }}", "let s{k} = S{k}(1u, param({k}u));", "s{k}.b"),
    "private": ("var<private> g{k}: u32;", "g{k} = param({k}u);", "g{k}"),
    "pointer": ("", "var w{k} = param({k}u); let q{k} = &w{k};", "(*q{k})"),
    "computed index": ("", "let at{k} = {k}u * 2u;", "param(at{k} / 2u)"),
    "constant index": ("const AT{k} = {k}u;", "", "param(AT{k})"),
    "variable index": ("", "var j{k} = 0u; while (j{k} < {k}u) {{ j{k}++; }}", "param(j{k})"),
    "words": ("", "", "params.words[{k}u / 4u][{k}u % 4u]"),
    "mask": ("", "", "(param({k}u) & 0xffffffffu)"),
    "or": ("", "", "(param({k}u) | 0u)"),
    "shift": ("", "let h{k} = param({k}u) >> 16u;", "((h{k} << 16u) | (param({k}u) & 0xffffu))"),
    "select": ("", "", "select(param(0u), param({k}u), true)"),
    "branch": ("", "var w{k} = 0u; if (true) {{ w{k} = param({k}u); }}", "w{k}"),
    "shadow": ("", "let w{k} = param({k}u); {{ let w{k} = 1.5; _ = w{k}; }}", "w{k}"),
}
"""How a word reaches its use."""


@dataclass(frozen=True)
class WordParameter:
    """A parameter of a text."""

    name: str
    type: str
    way: str
    is_declared: bool


@dataclass(frozen=True)
class TextKernel:
    """A kernel of WGSL alone: each result is one parameter, in every element."""

    name: str
    parameters: tuple[WordParameter, ...]
    split: Split

    @property
    def must_run(self) -> bool:
        """Whether all types are shown, or all are declared. One word that cannot be followed may
        be any word, so its way can hide the types of the others."""
        return all(each.is_declared for each in self.parameters) or all(
            each.way in SHOWN for each in self.parameters
        )


def draw_text_kernel(random: Random, name: str) -> TextKernel:
    """Draw a kernel of WGSL alone."""
    odd = random.random() < 0.8
    parameters = tuple(
        WordParameter(
            f"p{number}",
            random.choice(list(DTYPES)),
            random.choice(list(WAYS) if odd else SHOWN),
            random.random() < 0.5,
        )
        for number in range(random.randint(1, 4))
    )
    if random.random() < 0.6:
        parameters = tuple(replace(each, is_declared=True) for each in parameters)
    splits: tuple[Split, ...] = ("elements", "whole")
    return TextKernel(name, parameters, random.choice(splits))


def write_text(kernel: TextKernel) -> str:
    """The WGSL text."""
    before, begin, stores = [], [], []
    lines = ["@group(0) @binding(0) var<storage, read> x: array<u32>;"]
    for number, each in enumerate(kernel.parameters):
        word, type_ = number + 1, each.type
        lines.append(
            f"@group(0) @binding({word}) var<storage, read_write> y{word}: array<{type_}>;"
        )
        cast = CAST[type_].format("w")
        one, two, value = (part.format(k=word, t=type_, cast=cast) for part in WAYS[each.way])
        before.append(one)
        begin.append(two)
        value = value if each.way == "argument" else CAST[type_].format(value)
        stores.append(f"        y{word}[i] = {value};")
    lines += [
        *before,
        "@compute @workgroup_size(work_group)",
        "fn main(@builtin(global_invocation_id) at: vec3<u32>) {",
        "    let i = at.x;",
        *(f"    {each}" for each in begin),
        "    if (i < arrayLength(&x)) {",
        *stores,
        "    }",
        "}",
    ]
    return "\n".join(line for line in lines if line.strip()) + "\n"


def make_text_kernel(kernel: TextKernel) -> gx.Kernel:
    """The kernel with the types that it declares."""
    types = {each.name: each.type if each.is_declared else None for each in kernel.parameters}
    outputs = [("out", DTYPES[each.type]) for each in kernel.parameters]
    return gx.Kernel.from_wgsl(
        write_text(kernel),
        name=kernel.name,
        buffers=["in u4", *outputs],
        params=types if any(types.values()) else list(types),
        split=kernel.split,
    )


def draw_value(random: Random, type_: str) -> Any:
    """A value that fits a type, as one of the types of Python and NumPy that callers use."""
    if type_ == "f32":
        number = random.choice((0.0, -0.0, 1.5, -2.25, 3, -7, 1e20, 16777216, random.random()))
        choices = [number, np.float32(number), np.float64(number)]
        return random.choice(choices)
    low, high = (-(1 << 31), (1 << 31) - 1) if type_ == "i32" else (0, (1 << 32) - 1)
    number = random.choice((0, 1, 7, 1 << 23, low, high, random.randint(low, high)))
    return random.choice((number, np.dtype(DTYPES[type_]).type(number)))


def draw_wrong_value(random: Random, type_: str) -> Any:
    """A value that fits no word of a type."""
    return random.choice((1.5, True, "1") if type_ != "f32" else ("1", True, [1.0]))


def run_text_kernel(
    tally: Tally, backend: Any, kernel: TextKernel, random: Random, calls: int
) -> None:
    """Run a kernel and compare its results with the values of its parameters."""
    try:
        made = make_text_kernel(kernel)
    except REFUSALS as error:
        if kernel.must_run:
            tally.failures.append(f"{kernel.name}: {error}\n{write_text(kernel)}")
        else:
            tally.predicted["types"] += 1
        return
    tally.kernels += 1
    for number in range(calls):
        wrong = random.random() < 0.05
        values = [draw_value(random, each.type) for each in kernel.parameters]
        if wrong:
            at = random.randrange(len(values))
            values[at] = draw_wrong_value(random, kernel.parameters[at].type)
        size = random.choice((1, 3, 64, 100, 300))
        params: Any = tuple(values)
        if random.random() < 0.5:
            params = {
                each.name: value for each, value in zip(kernel.parameters, values, strict=True)
            }
        where = f"{kernel.name}, call {number}"
        try:
            result = backend.run(made, np.ones(size, np.uint32), params=params)
        except REFUSALS as error:
            if kernel.must_run and not wrong:
                tally.failures.append(f"{where}: {values}: {error}\n{write_text(kernel)}")
            tally.predicted["value" if wrong else "types"] += 1
            tally.calls += 1
            continue
        tally.calls += 1
        fault = "not refused" if wrong else _compare(kernel, values, size, result)
        if fault:
            tally.failures.append(f"{where}: {fault}\n{write_text(kernel)}")


def _compare(kernel: TextKernel, values: list[Any], size: int, result: Any) -> str:
    results = result if isinstance(result, tuple) else (result,)
    for each, value, found in zip(kernel.parameters, values, results, strict=True):
        expected: Array = np.full(size, value, DTYPES[each.type])
        if found.dtype != expected.dtype or found.tobytes() != expected.tobytes():
            return f"{each} is {found[0]} instead of {value!r}"
    return ""
