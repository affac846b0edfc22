"""gpu-executor: opens a GPU once and runs SPIR-V kernels on NumPy arrays, call after call.

`import gpu_executor` is quick: a public name and the modules that it needs are imported when the
name is first used (PEP 562). Type checkers see every name in the block below.
"""

from typing import TYPE_CHECKING, Any

from gpu_executor.version import __version__

if TYPE_CHECKING:
    from gpu_executor import cluster, curves, errors, fields, groth16, hashes, kernels, kzg, ops
    from gpu_executor.arrays.device_array import DeviceArray
    from gpu_executor.backend import open_backend
    from gpu_executor.cpu.backend import CpuBackend
    from gpu_executor.curves import Curve
    from gpu_executor.device_info import DeviceInfo
    from gpu_executor.errors import (
        DeviceLostError,
        ElementRangeError,
        GpuError,
        NoDeviceError,
        OutOfMemoryError,
    )
    from gpu_executor.executor import GpuExecutor
    from gpu_executor.fields import ExtensionField, Field
    from gpu_executor.graphs import graph
    from gpu_executor.kernel import Kernel, Reference, Tuning
    from gpu_executor.merkle import MerkleTree
    from gpu_executor.plan import Plan
    from gpu_executor.settings import Settings
    from gpu_executor.vulkan.instance import find_devices as devices
    from gpu_executor.vulkan.one_shot import VulkanSpirvBackend
    from gpu_executor.vulkan.persistent import PersistentVulkanBackend
    from gpu_executor.webgpu.wgpu_executor import WgpuExecutor

__all__ = [
    "CpuBackend",
    "Curve",
    "DeviceArray",
    "DeviceInfo",
    "DeviceLostError",
    "ElementRangeError",
    "ExtensionField",
    "Field",
    "GpuError",
    "GpuExecutor",
    "Kernel",
    "MerkleTree",
    "NoDeviceError",
    "OutOfMemoryError",
    "PersistentVulkanBackend",
    "Plan",
    "Reference",
    "Settings",
    "Tuning",
    "VulkanSpirvBackend",
    "WgpuExecutor",
    "__version__",
    "cluster",
    "curves",
    "devices",
    "errors",
    "fields",
    "graph",
    "groth16",
    "hashes",
    "kernels",
    "kzg",
    "open_backend",
    "ops",
]

_DEFINED_IN = {
    "CpuBackend": "gpu_executor.cpu.backend:CpuBackend",
    "Curve": "gpu_executor.curves:Curve",
    "DeviceArray": "gpu_executor.arrays.device_array:DeviceArray",
    "DeviceInfo": "gpu_executor.device_info:DeviceInfo",
    "DeviceLostError": "gpu_executor.errors:DeviceLostError",
    "ElementRangeError": "gpu_executor.errors:ElementRangeError",
    "ExtensionField": "gpu_executor.fields:ExtensionField",
    "Field": "gpu_executor.fields:Field",
    "GpuError": "gpu_executor.errors:GpuError",
    "GpuExecutor": "gpu_executor.executor:GpuExecutor",
    "Kernel": "gpu_executor.kernel:Kernel",
    "MerkleTree": "gpu_executor.merkle:MerkleTree",
    "NoDeviceError": "gpu_executor.errors:NoDeviceError",
    "OutOfMemoryError": "gpu_executor.errors:OutOfMemoryError",
    "PersistentVulkanBackend": "gpu_executor.vulkan.persistent:PersistentVulkanBackend",
    "Plan": "gpu_executor.plan:Plan",
    "Reference": "gpu_executor.kernel.declaration:Reference",
    "Settings": "gpu_executor.settings:Settings",
    "Tuning": "gpu_executor.kernel.declaration:Tuning",
    "VulkanSpirvBackend": "gpu_executor.vulkan.one_shot:VulkanSpirvBackend",
    "WgpuExecutor": "gpu_executor.webgpu.wgpu_executor:WgpuExecutor",
    "devices": "gpu_executor.vulkan.instance:find_devices",
    "graph": "gpu_executor.graphs:graph",
    "open_backend": "gpu_executor.backend:open_backend",
}
"""The module and attribute of every public name that is not a submodule."""


def __getattr__(name: str) -> Any:
    """Import a public name or a submodule when it is first used. From then on it is an ordinary
    attribute of the package."""
    import importlib

    if name in _DEFINED_IN:
        module, _, attribute = _DEFINED_IN[name].partition(":")
        value = globals()[name] = getattr(importlib.import_module(module), attribute)
        return value
    if not name.startswith("_"):
        submodule = f"{__name__}.{name}"
        try:
            return importlib.import_module(submodule)
        except ModuleNotFoundError as error:
            if error.name != submodule:
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
