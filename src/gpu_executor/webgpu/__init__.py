"""The WebGPU backend: runs kernels' WGSL through wgpu-py, also where there is no Vulkan.

Importing this package does not import wgpu; `WgpuExecutor` does when it is opened.
"""

from gpu_executor.webgpu.boundaries import size_bucket

__all__ = ["size_bucket"]
