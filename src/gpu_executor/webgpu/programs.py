"""Programs: kernels' WGSL compiled, one for each choice of work-groups, kept for ever.

Every program of a kernel computes the same, and they share one bind group layout. So while the one
that suits a bucket is being compiled in the background, another serves.
"""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.webgpu.borders import SMALLEST_BUCKET
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.wgsl import PARAMETER_WORDS, PRELUDE_LINES

PARAMETER_BYTES = 4 * PARAMETER_WORDS
LARGE_BUCKET = 1 << 18
USUAL_WORK_GROUP, SMALL_WORK_GROUP = 128, 64
Tuning = tuple[int, int]
"""The work-group size and the elements per invocation."""


@dataclass(frozen=True, slots=True)
class Program:
    """A pipeline, and how the work is cut for it."""

    pipeline: Any
    work_group: int
    per_invocation: int
    at_once: int
    """Elements of one step of an invocation."""
    seconds: float
    """What compiling took."""

    def groups(self, count: int, most: int) -> tuple[int, int]:
        """Work-groups for that many elements, in a grid of at most `most` a side."""
        groups = -(-count // (self.work_group * self.per_invocation * self.at_once))
        return (groups, 1) if groups <= most else (most, -(-groups // most))


class Programs:
    """Compiles what is asked for, once. Safe from several threads."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        self._lock = threading.Lock()
        self._layouts: dict[Kernel, Any] = {}
        self._compiled: dict[Kernel, dict[Tuning, Program]] = {}
        self._coming: dict[tuple[Kernel, Tuning], Future[Program]] = {}
        self._background = ThreadPoolExecutor(1, thread_name_prefix="gpu-executor compiles")

    def get(self, kernel: Kernel, bucket: int) -> Program:
        """The program for a bucket, or another of the kernel's while that one is compiled."""
        tuning = self._tuning(kernel, bucket)
        known = self._compiled.get(kernel)
        if known is not None:
            program = known.get(tuning)
            if program is not None:
                return program
            self._begin(kernel, tuning)
            return min([*known.values()], key=lambda each: abs(each.work_group - tuning[0]))
        return self._begin(kernel, tuning).result()

    def warm_up(self, kernel: Kernel, bucket: int) -> None:
        """Return when the program for a bucket is compiled."""
        self._begin(kernel, self._tuning(kernel, bucket)).result()

    def layout(self, kernel: Kernel) -> Any:
        """The bind group layout of all of a kernel's programs."""
        with self._lock:
            known = self._layouts.get(kernel)
            if known is None:
                entries = _entries(kernel, self._uniform_at(kernel))
                known = self._device.device.create_bind_group_layout(entries=entries)
                self._layouts[kernel] = known
            return known

    def of(self, kernel: Kernel, bucket: int) -> Program | None:
        """The program that suits a bucket, if it is compiled."""
        return self._compiled.get(kernel, {}).get(self._tuning(kernel, bucket))

    def all(self) -> list[Program]:
        with self._lock:
            return [program for each in self._compiled.values() for program in each.values()]

    def close(self) -> None:
        """Wait for what is being compiled."""
        self._background.shutdown(wait=True)

    def _begin(self, kernel: Kernel, tuning: Tuning) -> Future[Program]:
        with self._lock:
            coming = self._coming.get((kernel, tuning))
            if coming is None:
                coming = self._background.submit(self._compile, kernel, tuning)
                self._coming[kernel, tuning] = coming
        return coming

    def _compile(self, kernel: Kernel, tuning: Tuning) -> Program:
        """A text that is wrong is a `KernelError` with the compiler's words and line."""
        try:
            program = self._compiled_now(kernel, tuning)
        except BaseException:
            with self._lock:
                del self._coming[kernel, tuning]  # whoever asks again is told again
            raise
        with self._lock:
            self._compiled.setdefault(kernel, {})[tuning] = program
        return program

    def _compiled_now(self, kernel: Kernel, tuning: Tuning) -> Program:
        if kernel.wgsl is None:
            raise KernelError(f"kernel {kernel.name!r} has no WGSL, so WebGPU cannot run it")
        begun = time.perf_counter()
        text = kernel.wgsl.whole(uniform_at=self._uniform_at(kernel))
        device = self._device.device
        immediate_size = PARAMETER_BYTES if self._device.immediates else 0
        try:
            layout = device.create_pipeline_layout(
                bind_group_layouts=[self.layout(kernel)], immediate_size=immediate_size
            )
            module = device.create_shader_module(code=text, label=kernel.name)
            constants = _constants(text, *tuning)
            stage = {"module": module, "entry_point": "main", "constants": constants}
            pipeline = device.create_compute_pipeline(layout=layout, compute=stage)
        except self._device.wgpu.GPUError as error:
            raise KernelError(f"kernel {kernel.name!r}: {_in_own_lines(str(error))}") from None
        return Program(pipeline, *tuning, kernel.wgsl.at_once, time.perf_counter() - begun)

    def _uniform_at(self, kernel: Kernel) -> int | None:
        return None if self._device.immediates else kernel.bindings

    def _tuning(self, kernel: Kernel, bucket: int) -> Tuning:
        """Small work-groups reach all of the chip with a small task; of a large one an invocation
        takes two elements."""
        limits = self._device.limits
        most = min(
            limits["max-compute-workgroup-size-x"],
            limits["max-compute-invocations-per-workgroup"],
        )
        usual = kernel.work_group or USUAL_WORK_GROUP
        wanted = SMALL_WORK_GROUP if bucket <= SMALLEST_BUCKET else usual
        large = bucket >= LARGE_BUCKET and not self._device.is_software
        return min(wanted, most), 2 if large else 1


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
