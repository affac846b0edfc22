"""Compute pipelines: a kernel's code compiled once for each work-group tuning, never evicted. The
code is the kernel's WGSL, or the package's own SPIR-V (`spirv_pipelines.py`).

All pipelines of a kernel compute the same results and share one bind group layout. So while the
pipeline tuned for a bucket is compiled in the background, another pipeline of the kernel is used.
"""

from __future__ import annotations

import re
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from gpu_executor.errors import DeviceLacksError, KernelError
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.kernel.wgsl import PARAMETER_BYTES, PRELUDE_LINES, WgslCode
from gpu_executor.plan.plan import choose_work_groups
from gpu_executor.webgpu.boundaries import SMALLEST_BUCKET
from gpu_executor.webgpu.device import WebGpuDevice
from gpu_executor.webgpu.fill_pipeline import FillPipeline
from gpu_executor.webgpu.kernel_text import WorkGroupUse, check_text
from gpu_executor.webgpu.spirv_pipelines import (
    SpirvPipelines,
    count_parameter_bytes,
    is_readable,
)

LARGE_BUCKET = 1 << 18
USUAL_WORK_GROUP, SMALL_WORK_GROUP = 128, 64
Tuning = tuple[int, int]
"""The work-group size and the elements per invocation."""


@dataclass(frozen=True, slots=True)
class TunedPipeline:
    """A compiled pipeline and the tuning it was compiled for."""

    pipeline: Any
    kernel: Kernel
    work_group: int
    per_invocation: int
    uses_rows: bool
    """Whether the code counts the work-groups of a grid with several rows."""
    parameter_bytes: int
    """The bytes of its parameters, as immediates or in a uniform buffer."""
    compile_seconds: float

    def size_grid(self, invocations: int, device: WebGpuDevice) -> Grid:
        """Return the work-groups for that many elements, in several rows if one is too long."""
        packed = 1 if self.kernel.wgsl is None else self.kernel.wgsl.packed
        step = self.work_group * self.per_invocation * packed
        groups, limit = -(-invocations // step), device.max_groups
        if groups > limit and not self.uses_rows:
            raise DeviceLacksError(
                f"{self.kernel.name}: {invocations:,} elements need {groups:,} work-groups of "
                f"{self.work_group}; {device.name} allows {limit:,} in one dimension. Take the "
                "index from first_element(...), which counts several rows of them, or give grid="
            )
        return device.spread_groups(groups)


def check_grid(kernel: Kernel, grid: Grid, device: WebGpuDevice) -> None:
    """Refuse a kernel's grid with more work-groups than the device takes in a dimension."""
    for axis, groups in zip("xyz", grid, strict=True):
        if groups > device.max_groups:
            raise DeviceLacksError(
                f"{kernel.name}: grid has {groups:,} work-groups in {axis}; {device.name} takes "
                f"at most {device.max_groups:,}"
            )


class PipelineCompiler:
    """Compiles each pipeline once, in a thread of its own. Thread-safe."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        self.spirv = SpirvPipelines(device)
        self.fill = FillPipeline(device)
        self._lock = threading.Lock()
        self._layouts: dict[Kernel, Any] = {}
        self._work_group_uses: dict[Kernel, WorkGroupUse] = {}
        self._compiled: dict[Kernel, dict[Tuning, TunedPipeline]] = {}
        self._requested: dict[tuple[Kernel, Tuning], Future[TunedPipeline]] = {}
        """Every compilation that was started and did not fail."""
        self._background = ThreadPoolExecutor(1, thread_name_prefix="gpu-executor compiles")

    def get(self, kernel: Kernel, bucket: int) -> TunedPipeline:
        """Return the pipeline tuned for a bucket; until it is compiled, another one of the
        kernel.
        """
        tuning = self.tune(kernel, bucket)
        compiled = self._compiled.get(kernel)
        if compiled is not None:
            pipeline = compiled.get(tuning)
            if pipeline is not None:
                return pipeline
            self._request(kernel, tuning)
            return min([*compiled.values()], key=lambda each: abs(each.work_group - tuning[0]))
        return self._request(kernel, tuning).result()

    def compile(self, kernel: Kernel, bucket: int) -> None:
        """Compile the pipeline tuned for a bucket, and wait for it."""
        self._request(kernel, self.tune(kernel, bucket)).result()

    def get_layout(self, kernel: Kernel) -> Any:
        """Return the bind group layout that all pipelines of a kernel share."""
        if kernel.wgsl is None:
            return self.spirv.get_layout(kernel)
        with self._lock:
            layout = self._layouts.get(kernel)
            if layout is None:
                types = _list_binding_types(kernel)
                if self._find_uniform_binding(kernel) is not None:
                    types.append("uniform")
                layout = self._device.create_layout(types)
                self._layouts[kernel] = layout
            return layout

    def find(self, kernel: Kernel, bucket: int) -> TunedPipeline | None:
        """Return the pipeline tuned for a bucket if it is compiled."""
        return self._compiled.get(kernel, {}).get(self.tune(kernel, bucket))

    def list_compiled(self) -> list[TunedPipeline]:
        """Return every compiled pipeline."""
        with self._lock:
            return [pipeline for each in self._compiled.values() for pipeline in each.values()]

    def make_for_arrays(
        self, kernel: Kernel, work_group: int, per_invocation: int
    ) -> tuple[TunedPipeline, Any]:
        """Return the pipeline that runs a kernel on device arrays, and its bind group layout.

        The package's SPIR-V comes before its WGSL there, whose buffers may be padded.
        """
        tuning = work_group, per_invocation
        if is_readable(kernel) and kernel.wgsl is not None:
            return self._compile_spirv(kernel, tuning), self.spirv.get_layout(kernel)
        return self._request(kernel, tuning).result(), self.get_layout(kernel)

    def describe_code(self, kernel: Kernel, *, spirv: bool) -> str:
        """Say which code of a kernel runs, and how it multiplies words."""
        if not spirv:
            return "code: the kernel's WGSL"
        words = "64-bit integers" if self.spirv.form == "int64" else "halves of 16 bits"
        return f"code: the package's SPIR-V for WebGPU, products of words by {words}"

    def close(self) -> None:
        """Wait for the compilations in progress."""
        self._background.shutdown(wait=True)

    def _request(self, kernel: Kernel, tuning: Tuning) -> Future[TunedPipeline]:
        with self._lock:
            requested = self._requested.get((kernel, tuning))
            if requested is None:
                requested = self._background.submit(self._compile_and_store, kernel, tuning)
                self._requested[kernel, tuning] = requested
        return requested

    def _compile_and_store(self, kernel: Kernel, tuning: Tuning) -> TunedPipeline:
        try:
            pipeline = self._compile(kernel, tuning)
        except BaseException:
            with self._lock:
                del self._requested[kernel, tuning]  # the next request compiles, and raises, again
            raise
        with self._lock:
            self._compiled.setdefault(kernel, {})[tuning] = pipeline
        return pipeline

    def _compile(self, kernel: Kernel, tuning: Tuning) -> TunedPipeline:
        """Compile a pipeline; invalid WGSL raises `KernelError` with the compiler's message."""
        if kernel.wgsl is None:
            return self._compile_spirv(kernel, tuning)
        begun = time.perf_counter()
        text = kernel.wgsl.with_prelude(uniform_binding=self._find_uniform_binding(kernel))
        device = self._device.device
        immediate_size = PARAMETER_BYTES if self._device.immediates else 0
        try:
            layout = device.create_pipeline_layout(
                bind_group_layouts=[self.get_layout(kernel)], immediate_size=immediate_size
            )
            module = device.create_shader_module(code=text, label=kernel.name)
            constants = _find_override_constants(kernel.wgsl, *tuning)
            stage = {"module": module, "entry_point": "main", "constants": constants}
            pipeline = device.create_compute_pipeline(layout=layout, compute=stage)
        except self._device.wgpu.GPUError as error:
            raise KernelError(f"kernel {kernel.name!r}: {describe_error(error)}") from None
        rows = self._get_work_group_use(kernel).rows
        seconds = time.perf_counter() - begun
        return TunedPipeline(pipeline, kernel, *tuning, rows, PARAMETER_BYTES, seconds)

    def _compile_spirv(self, kernel: Kernel, tuning: Tuning) -> TunedPipeline:
        begun = time.perf_counter()
        pipeline = self.spirv.get(kernel, *tuning)
        return TunedPipeline(
            pipeline,
            kernel,
            *tuning,
            uses_rows=False,
            parameter_bytes=count_parameter_bytes(kernel),
            compile_seconds=time.perf_counter() - begun,
        )

    def _find_uniform_binding(self, kernel: Kernel) -> int | None:
        """Return the binding of the uniform buffer; None where parameters are immediates."""
        return None if self._device.immediates else kernel.bindings

    def tune(self, kernel: Kernel, bucket: int) -> Tuning:
        """Choose the tuning for a bucket.

        Small work-groups spread a small task over the whole GPU. In a large task each invocation
        computes two elements.
        """
        if kernel.wgsl is None:
            self.spirv.check(kernel)
            return choose_work_groups(kernel, bucket, self._device.info, [])
        use = self._get_work_group_use(kernel)
        limits = self._device.limits
        most = min(
            limits["max-compute-workgroup-size-x"],
            limits["max-compute-invocations-per-workgroup"],
        )
        usual = kernel.work_group or USUAL_WORK_GROUP
        work_group = SMALL_WORK_GROUP if bucket <= SMALLEST_BUCKET else usual
        large = bucket >= LARGE_BUCKET and not self._device.is_software
        return use.fixed or min(work_group, most), 2 if large and use.per_invocation else 1

    def _get_work_group_use(self, kernel: Kernel) -> WorkGroupUse:
        use = self._work_group_uses.get(kernel)
        if use is None:
            code = check_text(kernel)
            use = self._work_group_uses[kernel] = WorkGroupUse.read(kernel, code)
        return use


def _find_override_constants(
    code: WgslCode, work_group: int, per_invocation: int
) -> dict[str, int]:
    """Return the values of those `override` constants that the text uses.

    wgpu refuses a value for an `override` that is declared but not used.
    """
    values = {"work_group": work_group, "per_invocation": per_invocation}
    if code.uses("first_element"):
        return values
    return {name: value for name, value in values.items() if code.uses(name)}


def _list_binding_types(kernel: Kernel) -> list[str]:
    arguments = [
        "storage" if argument.is_output else "read-only-storage" for argument in kernel.arguments
    ]
    return arguments + ["storage"] * kernel.hidden_buffers


_TOO_SMALL = re.compile(
    r"binding index (\d+) is bound with size (\d+) where the shader expects (\d+)"
)


def describe_error(error: Exception) -> str:
    """Return wgpu's message in the user's terms: arguments for bindings, and line numbers that
    count from the start of the user's text, not of the prelude.
    """

    def renumber(match: re.Match[str]) -> str:
        return f"{max(int(match[1]) - PRELUDE_LINES, 1)}{match[2]}"

    too_small = _TOO_SMALL.search(str(error))
    if too_small is not None:
        binding, found, expected = too_small.groups()
        return f"argument {binding} has {found} bytes; the text needs at least {expected}"
    message = re.sub(r"(?m)^\s*(\d+)( │)", renumber, str(error))
    message = re.sub(r"(?<=wgsl:)(\d+)(:)", renumber, message)
    return message.strip()
