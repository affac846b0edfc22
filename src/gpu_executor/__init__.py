"""gpu-executor: opens a GPU once and runs SPIR-V kernels on NumPy arrays again and again."""

from gpu_executor import cluster, errors, fields, kernels
from gpu_executor.backend import open_backend
from gpu_executor.cpu.backend import CpuBackend
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import (
    DeviceLostError,
    ElementRangeError,
    GpuError,
    NoDeviceError,
    OutOfMemoryError,
)
from gpu_executor.executor import GpuExecutor
from gpu_executor.fields import Field
from gpu_executor.graphs import graph
from gpu_executor.kernel import Kernel
from gpu_executor.plan import Plan
from gpu_executor.settings import Settings
from gpu_executor.version import __version__
from gpu_executor.vulkan.instance import find_devices as devices
from gpu_executor.vulkan.one_shot import VulkanSpirvBackend
from gpu_executor.vulkan.persistent import PersistentVulkanBackend
from gpu_executor.webgpu.executor import WgpuExecutor

__all__ = [
    "CpuBackend",
    "DeviceArray",
    "DeviceInfo",
    "DeviceLostError",
    "ElementRangeError",
    "Field",
    "GpuError",
    "GpuExecutor",
    "Kernel",
    "NoDeviceError",
    "OutOfMemoryError",
    "PersistentVulkanBackend",
    "Plan",
    "Settings",
    "VulkanSpirvBackend",
    "WgpuExecutor",
    "__version__",
    "cluster",
    "devices",
    "errors",
    "fields",
    "graph",
    "kernels",
    "open_backend",
]
