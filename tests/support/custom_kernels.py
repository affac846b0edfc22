"""Kernels compiled from GLSL, as a user writes them."""

from __future__ import annotations

from typing import Any, Literal

import gpu_executor as gx
from tests.support.glsl import compile_glsl

HEAD = "layout(local_size_x_id = 0) in;"
"""The work-group size is a specialization constant, which the plan sets."""
COUNT = "layout(push_constant) uniform Push { uint count; };"
"""The element count as the only push constant."""
BODY = "uint i = gl_GlobalInvocationID.x; if (i >= count) return;"
"""The beginning of a `main` with one invocation per element."""


def buffer(binding: int, name: str, kind: str = "uint", qualifier: str = "") -> str:
    """The declaration of a storage buffer with an array of that name."""
    where = f"layout(set = 0, binding = {binding}, std430) {qualifier}"
    return f"{where} buffer B{binding} {{ {kind} {name}[]; }};"


def kernel(
    body: str,
    *declarations: str,
    pushed: str = COUNT,
    split: Literal["elements", "whole"] = "elements",
    **options: Any,
) -> gx.Kernel:
    """Compile a kernel; `declarations` are its buffers and `pushed` is its push constant block."""
    code = compile_glsl("\n".join([HEAD, pushed, *declarations, f"void main() {{ {body} }}"]))
    return gx.Kernel.from_spirv(code, split=split, **options)


def sum_and_difference(**options: Any) -> gx.Kernel:
    """A kernel of two inputs a and b, and two outputs a + b and a - b."""
    return kernel(
        BODY + "s[i] = a[i] + b[i]; d[i] = a[i] - b[i];",
        buffer(0, "a"),
        buffer(1, "b"),
        buffer(2, "s"),
        buffer(3, "d"),
        buffers="in, in, out, out",
        **options,
    )


def whole_sum() -> gx.Kernel:
    """Every invocation sums all inputs; the first one writes the result."""
    return kernel(
        "uint total = 0; for (uint k = 0; k < count; ++k) total += x[k];"
        "if (gl_GlobalInvocationID.x == 0) result[0] = total;",
        buffer(0, "x", qualifier="readonly"),
        buffer(1, "result"),
        buffers="in, out",
        split="whole",
        out_shape=lambda shape: (1,),
    )
