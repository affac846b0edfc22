"""An alias kept for users: `size_bucket` lives in `gpu_executor.webgpu.boundaries`."""

from gpu_executor.webgpu.boundaries import size_bucket

__all__ = ["size_bucket"]
