"""Kernels with parameters, in-out arguments, structs or no inputs, for tests of executors.

Each has a reference; those for `BACKENDS` have WGSL too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.kernel import Shape
from gpu_executor.kernel.wgsl import WgslCode
from tests.support.custom_kernels import BODY, buffer, kernel

Array = npt.NDArray[Any]

_WGSL_MAIN = """
@compute @workgroup_size(work_group)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {{
    var i = first_element(group, groups, local);
    for (var n = 0u; n < per_invocation; n++) {{
        if (i < param(0u)) {{ {statement} }}
        i += work_group;
    }}
}}
"""


def scale(**options: Any) -> gx.Kernel:
    """factor * x + offset, element by element; the offset is 0 by default."""
    declared = {
        "params": {"offset": 0},
        "reference": lambda x, factor, offset: x * np.uint32(factor) + np.uint32(offset),
        "name": "scale",
        **options,
    }
    return kernel(
        BODY + "y[i] = factor * x[i] + offset;",
        buffer(0, "x", qualifier="readonly"),
        buffer(1, "y", qualifier="writeonly"),
        pushed="layout(push_constant) uniform Push { uint count; uint factor; uint offset; };",
        wgsl=WgslCode(
            "@group(0) @binding(0) var<storage, read> x: array<u32>;"
            "@group(0) @binding(1) var<storage, read_write> y: array<u32>;"
            + _WGSL_MAIN.format(statement="y[i] = param(1u) * x[i] + param(2u);")
        ),
        **declared,
    )


def expect_scaled(x: Array, factor: int, offset: int = 0) -> Array:
    return np.asarray(x * np.uint32(factor) + np.uint32(offset))


def step(**options: Any) -> gx.Kernel:
    """One step of a generator of random numbers, x = 1664525 x + c, in place, element by element;
    c is in a second argument."""
    declared = {"reference": expect_step, "name": "step", **options}
    return kernel(
        BODY + "x[i] = 1664525u * x[i] + c[i];",
        buffer(0, "x"),
        buffer(1, "c", qualifier="readonly"),
        wgsl=WgslCode(
            "@group(0) @binding(0) var<storage, read_write> x: array<u32>;"
            "@group(0) @binding(1) var<storage, read> c: array<u32>;"
            + _WGSL_MAIN.format(statement="x[i] = 1664525u * x[i] + c[i];")
        ),
        **declared,
    )


def expect_step(x: Array, c: Array) -> Array:
    return np.asarray(x * np.uint32(1664525) + c)


def reverse(**options: Any) -> gx.Kernel:
    """An array in reverse order, in place; not element by element."""
    declared = {"reference": lambda x: x[::-1], "name": "reverse", **options}
    return kernel(
        BODY + "if (i < count / 2) { uint other = x[count - 1 - i];"
        "x[count - 1 - i] = x[i]; x[i] = other; }",
        buffer(0, "x"),
        split="whole",
        **declared,
    )


def outer(**options: Any) -> gx.Kernel:
    """The table of the products a[i] * b[j]: an output much larger than the inputs."""
    declared = {
        "reference": np.multiply.outer,
        "name": "outer",
        "out_shape": lambda a, b: (a[0], b[0]),
        **options,
    }
    return kernel(
        "uint i = gl_GlobalInvocationID.x, width = b.length();"
        "if (i < table.length()) table[i] = a[i / width] * b[i % width];",
        buffer(0, "a", qualifier="readonly"),
        buffer(1, "b", qualifier="readonly"),
        buffer(2, "table", qualifier="writeonly"),
        split="whole",
        **declared,
    )


def _compute_ramp(first: int, slope: int, out_shape: Shape) -> Array:
    return _compute_ramp_at(np.arange(np.prod(out_shape)), first, slope).reshape(out_shape)


def _compute_ramp_at(indices: Array, first: int, slope: int) -> Array:
    return np.asarray(np.uint32(first) + indices.astype(np.uint32) * np.uint32(slope))


def ramp(**options: Any) -> gx.Kernel:
    """first + slope * i: a kernel without inputs."""
    declared = {
        "reference": gx.Reference(_compute_ramp, at=_compute_ramp_at),
        "name": "ramp",
        "params": {"slope": 1},
        **options,
    }
    return kernel(
        "uint i = gl_GlobalInvocationID.x; if (i < y.length()) y[i] = first + slope * i;",
        buffer(0, "y", qualifier="writeonly"),
        pushed="layout(push_constant) uniform Push { uint count; uint first; uint slope; };",
        split="whole",
        **declared,
    )


def _make_particle(*names: str) -> np.dtype[Any]:
    formats, offsets = ["(3,)f4", "f4", "u4"], [0, 12, 16]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": 32})


PARTICLE = _make_particle("at", "mass", "id")
"""A struct of std430 with 12 bytes of padding."""
RENAMED_PARTICLE = _make_particle("position", "weight", "number")


def move(**options: Any) -> gx.Kernel:
    """Moves particles by (1, 2, 3) and counts their ids up, in place, element by element."""

    def compute(particles: Array) -> Array:
        particles["at"] += np.array([1, 2, 3], np.float32)
        particles["id"] += 1
        return particles

    return kernel(
        BODY + "p[i].at += vec3(1, 2, 3); p[i].id += 1;",
        "struct Particle { vec3 at; float mass; uint id; };",
        buffer(0, "p", "Particle"),
        reference=compute,
        name="move",
        **options,
    )


def make_particles(count: int) -> Array:
    particles = np.zeros(count, PARTICLE)
    particles["at"] = np.arange(3 * count).reshape(count, 3)
    particles["mass"], particles["id"] = 0.5, np.arange(count)
    return particles
