"""Programs: a kernel's WGSL compiled for one choice of work-groups."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.wgsl import PARAMETER_WORDS, PRELUDE_LINES

PARAMETER_BYTES = 4 * PARAMETER_WORDS


@dataclass(frozen=True, slots=True)
class Program:
    """A pipeline with its layout, and how the work is cut for it."""

    pipeline: Any
    bind_group_layout: Any
    work_group: int
    per_invocation: int
    seconds: float
    """What compiling took."""

    def groups(self, count: int, most: int) -> tuple[int, int]:
        """Work-groups for that many elements, in a grid of at most `most` a side."""
        groups = -(-count // (self.work_group * self.per_invocation))
        return (groups, 1) if groups <= most else (most, -(-groups // most))


def compile_program(
    device: WebGpuDevice, kernel: Kernel, work_group: int, per_invocation: int
) -> Program:
    """Compile it; a text that is wrong is a `KernelError` with the compiler's words and line."""
    if kernel.wgsl is None:
        raise KernelError(f"kernel {kernel.name!r} has no WGSL, so WebGPU cannot run it")
    begun = time.perf_counter()
    uniform_at = None if device.immediates else kernel.bindings
    text = kernel.wgsl.whole(uniform_at=uniform_at)
    wgpu = device.wgpu
    try:
        layout = device.device.create_bind_group_layout(entries=_entries(kernel, uniform_at))
        module = device.device.create_shader_module(code=text, label=kernel.name)
        pipeline = device.device.create_compute_pipeline(
            layout=device.device.create_pipeline_layout(
                bind_group_layouts=[layout],
                immediate_size=PARAMETER_BYTES if device.immediates else 0,
            ),
            compute={
                "module": module,
                "entry_point": "main",
                "constants": _constants(text, work_group, per_invocation),
            },
        )
    except wgpu.GPUError as error:
        raise KernelError(f"kernel {kernel.name!r}: {_in_own_lines(str(error))}") from None
    seconds = time.perf_counter() - begun
    return Program(pipeline, layout, work_group, per_invocation, seconds)


def _constants(text: str, work_group: int, per_invocation: int) -> dict[str, int]:
    """The overrides; those that the text declares and does not use would be refused."""
    own = text.split("\n", PRELUDE_LINES)[PRELUDE_LINES]
    used = {"work_group": work_group, "per_invocation": per_invocation}
    if "first_element" in own:
        return used
    return {name: value for name, value in used.items() if re.search(rf"\b{name}\b", own)}


def _entries(kernel: Kernel, uniform_at: int | None) -> list[dict[str, Any]]:
    kinds = ["read-only-storage"] * kernel.inputs + ["storage"] * (kernel.bindings - kernel.inputs)
    if uniform_at is not None:
        kinds.append("uniform")
    return [
        {"binding": index, "visibility": "COMPUTE", "buffer": {"type": kind}}
        for index, kind in enumerate(kinds)
    ]


def _in_own_lines(message: str) -> str:
    """The compiler counts the prelude's lines too; users know only their own."""

    def own(match: re.Match[str]) -> str:
        return f"{int(match[1]) - PRELUDE_LINES}{match[2]}"

    message = re.sub(r"(?m)^\s*(\d+)( │)", own, message)
    message = re.sub(r"(?<=wgsl:)(\d+)(:)", own, message)
    return message.strip()
