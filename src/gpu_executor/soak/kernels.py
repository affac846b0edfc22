"""Kernels of the soak test that are in no catalogue: with parameters, with an in-out argument, and
with an output that must begin with zeros."""

from __future__ import annotations

import functools

import numpy as np

from gpu_executor.calls.call import Array
from gpu_executor.kernel import Kernel, Reference, Tuning
from gpu_executor.kernel.wgsl import WgslCode
from gpu_executor.kernels.modules import SpecId, load_spirv

BINS = 256
MULTIPLIER = 1_664_525

_WGSL = """
{declarations}

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


def _render(declarations: list[str], statement: str) -> WgslCode:
    """Return the WGSL of a kernel with one statement per element."""
    bound = [f"@group(0) @binding({at}) {each};" for at, each in enumerate(declarations)]
    return WgslCode(_WGSL.format(declarations="\n".join(bound), statement=statement))


@functools.cache
def scale_kernel() -> Kernel:
    """Return the kernel of factor * a + offset modulo 2^32, with both as parameters by position."""
    return Kernel.from_spirv(
        load_spirv("scale_u32"),
        count=True,
        split="elements",
        init=None,
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
        name="scale_u32",
        reference=_scale,
        wgsl=_render(
            ["var<storage, read> a: array<u32>", "var<storage, read_write> result: array<u32>"],
            "result[i] = param(1u) * a[i] + param(2u);",
        ),
    )


@functools.cache
def step_kernel() -> Kernel:
    """Return the kernel of a step of linear congruential generators, whose states it changes."""
    return Kernel.from_spirv(
        load_spirv("lcg_step_u32"),
        count=True,
        split="elements",
        init=None,
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
        name="lcg_step_u32",
        reference=_step,
        wgsl=_render(
            ["var<storage, read_write> state: array<u32>", "var<storage, read> steps: array<u32>"],
            f"state[i] = {MULTIPLIER}u * state[i] + steps[i];",
        ),
    )


@functools.cache
def histogram_kernel() -> Kernel:
    """Return the kernel that counts elements by their lowest byte, with atomic additions."""
    return Kernel.from_spirv(
        load_spirv("histogram_u32"),
        count=True,
        buffers="in, out",
        out_shape=(BINS,),
        name="histogram_u32",
        work_group=64,
        reference=Reference(_count, at=_count_at),
        wgsl=_render(
            [
                "var<storage, read> a: array<u32>",
                "var<storage, read_write> bins: array<atomic<u32>>",
            ],
            "atomicAdd(&bins[a[i] & 255u], 1u);",
        ),
    )


def _scale(a: Array, p0: int, p1: int) -> Array:
    result: Array = a * np.uint32(p0) + np.uint32(p1)
    return result


def _step(state: Array, increment: Array) -> Array:
    result: Array = state * np.uint32(MULTIPLIER) + increment
    return result


def _count(a: Array) -> Array:
    return np.bincount(a.reshape(-1) % BINS, minlength=BINS).astype(np.uint32)


def _count_at(indices: Array, a: Array) -> Array:
    return _count(a)[indices]


KERNELS = {
    "scale_u32": scale_kernel,
    "lcg_step_u32": step_kernel,
    "histogram_u32": histogram_kernel,
}
"""By name, functions that return the kernels."""
