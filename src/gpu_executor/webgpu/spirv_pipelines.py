"""Compute pipelines of the package's own SPIR-V modules.

A module is specialized, reduced to what it uses, and lowered to what the device and naga take, the
reader of SPIR-V in wgpu. A module that naga does not expect may end the process, so only modules of
this package get here: a test has passed each of them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import DeviceLacksError, KernelError, SpirvError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.modules import get_digests
from gpu_executor.spirv.control_flow import follow_constants
from gpu_executor.spirv.dead_code import remove_dead_code
from gpu_executor.spirv.int64_lowering import lower_int64
from gpu_executor.spirv.naga_forms import rewrite_for_naga
from gpu_executor.spirv.product_lowering import ProductForm, lower_products
from gpu_executor.spirv.single_views import keep_single_views
from gpu_executor.spirv.specialization import specialize
from gpu_executor.webgpu.device import IMMEDIATE_BYTES, WebGpuDevice
from gpu_executor.webgpu.trusted_modules import create_trusted_module

INT64_FEATURE, SUBGROUP_FEATURE = "shader-int64", "subgroup"
FEATURE_OF_CAPABILITY = {
    10: "shader-f64",
    **dict.fromkeys(range(61, 69), SUBGROUP_FEATURE),
}
"""The features of WebGPU that SPIR-V capabilities need, by the number of the capability: Float64,
and those of subgroups. 64-bit integers are lowered where they lack."""
UNREADABLE = {4433: "16-bit storage", 4448: "8-bit storage", 4468: "a rounding mode"}
"""Capabilities that naga does not take."""


def prepare_module(
    code: bytes, constants: Mapping[int, int | float | bool], form: ProductForm
) -> bytes:
    """Return a module in the form that naga takes, with its specialization constants set."""
    code = follow_constants(specialize(code, constants), unroll=False)
    code = keep_single_views(remove_dead_code(code))
    if form == "halves":
        code = lower_int64(code)
    code = rewrite_for_naga(lower_products(code, form))
    return remove_dead_code(follow_constants(code, unroll=True))


@dataclass(frozen=True, slots=True, eq=False)
class SpirvPipeline:
    """A compiled pipeline, and the layout of its bind groups."""

    pipeline: Any
    layout: Any


class SpirvPipelines:
    """The pipelines of one device, each compiled once. Thread-safe."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        has_int64 = INT64_FEATURE in device.device.features
        self.form: ProductForm = "int64" if has_int64 else "halves"
        """How products of words are computed."""
        self._layouts: dict[tuple[int, ...], Any] = {}
        self._pipelines: dict[Any, SpirvPipeline] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of compiled pipelines."""
        return len(self._pipelines)

    def get(self, kernel: Kernel, constants: Mapping[int, int]) -> SpirvPipeline:
        """The pipeline of a kernel; `constants` are those that the plan chose, by id."""
        key = kernel, tuple(sorted(constants.items()))
        with self._lock:
            found = self._pipelines.get(key)
            if found is None:
                found = self._pipelines[key] = self._make(kernel, constants)
            return found

    def _make(self, kernel: Kernel, constants: Mapping[int, int]) -> SpirvPipeline:
        self._check(kernel)
        device, where = self._device.device, f"kernel {kernel.name!r}"
        try:
            code = prepare_module(kernel.spirv, {**dict(kernel.constants), **constants}, self.form)
        except SpirvError as error:
            raise DeviceLacksError(f"{where} has no form for WebGPU: {error}") from None
        layout = self._get_layout(tuple(kernel.interface.bindings))
        try:
            pipeline_layout = device.create_pipeline_layout(
                bind_group_layouts=[layout], immediate_size=-(-kernel.push_bytes // 4) * 4
            )
            module = create_trusted_module(self._device.wgpu, device, code, kernel.name)
            stage = {"module": module, "entry_point": kernel.interface.entry_point}
            pipeline = device.create_compute_pipeline(layout=pipeline_layout, compute=stage)
        except self._device.wgpu.GPUError as error:
            raise KernelError(f"{where}: WebGPU refuses its code: {error}") from None
        return SpirvPipeline(pipeline, layout)

    def _check(self, kernel: Kernel) -> None:
        """Refuse a kernel that the device cannot run, or that naga might not read."""
        where, name = f"kernel {kernel.name!r}", self._device.name
        if kernel.digest not in get_digests():
            raise KernelError(
                f"{where} has SPIR-V that is not the package's own, which WebGPU does not read "
                "safely; give wgsl="
            )
        limits = self._device.info.limits
        if kernel.push_bytes > min(limits.max_push_constants, IMMEDIATE_BYTES):
            raise DeviceLacksError(
                f"{where} has {kernel.push_bytes} bytes of push constants; {name} takes "
                f"{limits.max_push_constants} as immediates"
            )
        if kernel.bindings > limits.max_bound_buffers:
            raise DeviceLacksError(
                f"{where} binds {kernel.bindings} buffers; {name} takes {limits.max_bound_buffers}"
            )
        for capability in sorted(kernel.interface.capabilities):
            if capability in UNREADABLE:
                raise DeviceLacksError(
                    f"{where} needs {UNREADABLE[capability]}, which WebGPU does not have"
                )
            feature = FEATURE_OF_CAPABILITY.get(capability)
            if feature is not None and feature not in self._device.device.features:
                raise DeviceLacksError(f"{where} needs {feature}, which {name} lacks")

    def _get_layout(self, bindings: tuple[int, ...]) -> Any:
        found = self._layouts.get(bindings)
        if found is None:
            found = self._layouts[bindings] = self._device.device.create_bind_group_layout(
                entries=[
                    {"binding": binding, "visibility": "COMPUTE", "buffer": {"type": "storage"}}
                    for binding in bindings
                ]
            )
        return found
