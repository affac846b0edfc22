"""GpuExecutor: runs kernels on the machine's devices, as a `concurrent.futures.Executor`."""

from gpu_executor.executor.executor import GpuExecutor

__all__ = ["GpuExecutor"]
