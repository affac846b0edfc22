"""GpuExecutor: runs kernels on the machine's devices, as a `concurrent.futures.Executor`."""

from gpu_executor.executor.gpu_executor import GpuExecutor

__all__ = ["GpuExecutor"]
