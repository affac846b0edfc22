"""Compute pipelines of the package's own SPIR-V modules.

A module is specialized, reduced to what it uses, and lowered to what the device and naga take, the
reader of SPIR-V in wgpu; its loops are unrolled, since naga drops the request for it. A module that
naga does not expect may end the process, so only modules of this package get here: a test has
passed each of them.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from typing import Any

from gpu_executor.device_info import describe_alternatives
from gpu_executor.errors import DeviceLacksError, KernelError, SpirvError
from gpu_executor.kernel import Kernel
from gpu_executor.kernel.wgsl import PARAMETER_BYTES
from gpu_executor.kernels.modules import get_module_names, load_spirv
from gpu_executor.spirv.control_flow import follow_constants
from gpu_executor.spirv.dead_code import remove_dead_code
from gpu_executor.spirv.editor import ModuleEditor, Op
from gpu_executor.spirv.int64_lowering import lower_int64
from gpu_executor.spirv.naga_forms import rewrite_for_naga
from gpu_executor.spirv.product_lowering import ProductForm, lower_products
from gpu_executor.spirv.push_constants import move_to_storage_buffer
from gpu_executor.spirv.single_views import keep_single_views
from gpu_executor.spirv.specialization import specialize
from gpu_executor.steps.dispatch_sizes import choose_constants
from gpu_executor.webgpu.device import WebGpuDevice, find_adapters_with
from gpu_executor.webgpu.trusted_modules import create_trusted_module

_NO_CONTRACTION = 42  # Spec, "Decoration"
INT64_FEATURE, SUBGROUP_FEATURE = "shader-int64", "subgroup"
FEATURE_OF_CAPABILITY = {
    10: "shader-f64",
    **dict.fromkeys(range(61, 69), SUBGROUP_FEATURE),
}
"""The features of WebGPU that SPIR-V capabilities need, by the number of the capability: Float64,
and those of subgroups. 64-bit integers are lowered where they lack."""
UNREADABLE = (10, 4433, 4448, 4468)
"""Capabilities of modules that naga does not take: float64 (of which modules make words), 16-bit
storage, 8-bit storage, a rounding mode."""


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


def is_readable(kernel: Kernel) -> bool:
    """Whether naga reads a kernel's SPIR-V and keeps its meaning: a module of this package, without
    operations on floats that must not be contracted, which naga ignores."""
    return bool(kernel.spirv) and _is_readable(kernel.digest)


@functools.cache
def _is_readable(digest: str) -> bool:
    name = get_module_names().get(digest)
    if name is None:
        return False
    preamble = ModuleEditor(load_spirv(name)).preamble
    return not any(
        (opcode == Op.DECORATE and operands[1] == _NO_CONTRACTION)
        or (opcode == Op.CAPABILITY and operands[0] in UNREADABLE)
        for opcode, operands in preamble
    )


class SpirvPipelines:
    """The pipelines of one device, each compiled once. Thread-safe."""

    def __init__(self, device: WebGpuDevice) -> None:
        self._device = device
        has_int64 = INT64_FEATURE in device.device.features
        self.form: ProductForm = "int64" if has_int64 else "halves"
        """How products of words are computed."""
        self._layouts: dict[int, Any] = {}
        self._pipelines: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """The number of compiled pipelines."""
        return len(self._pipelines)

    def get(self, kernel: Kernel, work_group: int, per_invocation: int) -> Any:
        """The pipeline of a kernel for a size of work-groups and the elements of an invocation."""
        constants = choose_constants(kernel, work_group, per_invocation)
        key = kernel, tuple(sorted(constants.items()))
        with self._lock:
            found = self._pipelines.get(key)
            if found is None:
                found = self._pipelines[key] = self._make(kernel, constants)
            return found

    def _make(self, kernel: Kernel, constants: Mapping[int, int]) -> Any:
        self.check(kernel)
        device, where = self._device.device, f"kernel {kernel.name!r}"
        code = kernel.spirv
        if not self._device.immediates:
            code = move_to_storage_buffer(code, kernel.bindings)
        try:
            code = prepare_module(code, {**dict(kernel.constants), **constants}, self.form)
        except SpirvError as error:
            raise DeviceLacksError(f"{where} has no form for WebGPU: {error}") from None
        try:
            layout = device.create_pipeline_layout(
                bind_group_layouts=[self.get_layout(kernel)],
                immediate_size=count_parameter_bytes(kernel) if self._device.immediates else 0,
            )
            module = create_trusted_module(self._device.wgpu, device, code, kernel.name)
            stage = {"module": module, "entry_point": kernel.interface.entry_point}
            return device.create_compute_pipeline(layout=layout, compute=stage)
        except self._device.wgpu.GPUError as error:
            raise KernelError(f"{where}: WebGPU refuses its code: {error}") from None

    def check(self, kernel: Kernel) -> None:
        """Refuse a kernel that the device cannot run, or that naga might not read."""
        where, name = f"kernel {kernel.name!r}", self._device.name
        if not is_readable(kernel):
            raise KernelError(
                f"{where} has no WGSL, so WebGPU cannot run it: of SPIR-V it takes this package's "
                "own modules only; give wgsl=, or run it with Vulkan"
            )
        limits = self._device.info.limits
        if kernel.push_bytes > PARAMETER_BYTES:
            raise DeviceLacksError(
                f"{where} has {kernel.push_bytes} bytes of parameters; WebGPU kernels may have "
                f"{PARAMETER_BYTES}"
            )
        if kernel.bindings > limits.max_bound_buffers:
            raise DeviceLacksError(
                f"{where} binds {kernel.bindings} buffers; {name} takes {limits.max_bound_buffers}"
            )
        for capability in sorted(kernel.interface.capabilities):
            feature = FEATURE_OF_CAPABILITY.get(capability)
            if feature is not None and feature not in self._device.device.features:
                others = describe_alternatives(
                    find_adapters_with(feature),
                    "adapter",
                    has_reference=kernel.reference is not None,
                )
                raise DeviceLacksError(f"{where} needs {feature}, which {name} lacks ({others})")

    def get_layout(self, kernel: Kernel) -> Any:
        """The layout of the bind groups of a kernel. All buffers may be written, so that a call can
        bind one as an input and as an output. Without immediates the parameters are in a buffer
        behind the others."""
        count = kernel.bindings + (not self._device.immediates)
        found = self._layouts.get(count)
        if found is None:
            found = self._layouts[count] = self._device.create_layout(["storage"] * count)
        return found


def count_parameter_bytes(kernel: Kernel) -> int:
    """The bytes of the immediates of a kernel."""
    return -(-kernel.push_bytes // 4) * 4
