"""GpuExecutor: kernels on whatever the machine has, as a `concurrent.futures.Executor`."""

from gpu_executor.executor.executor import GpuExecutor

__all__ = ["GpuExecutor"]
