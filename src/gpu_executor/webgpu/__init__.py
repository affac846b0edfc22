"""The WebGPU backend: runs the WGSL of kernels through wgpu-py, also on machines without Vulkan.

Importing this package does not import wgpu; `WgpuExecutor` does when it is opened.
"""

from gpu_executor.webgpu.boundaries import size_bucket

__all__ = ["size_bucket"]
