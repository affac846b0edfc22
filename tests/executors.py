"""For tests of executors: kernels whose computation on the CPU a test can hold or watch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import gpu_executor as gx
from gpu_executor.executor.seats import BackendName
from gpu_executor.kernels.modules import spirv
from test_waiting import PATIENCE

Array = npt.NDArray[Any]
BACKENDS: tuple[BackendName, ...] = ("vulkan", "webgpu", "cpu")
ADD = gx.kernels.load("vector_add_u32")
FQ_ADD = gx.kernels.load("bls12_381_fq_add")


def kernel_of(reference: Callable[..., Any], **changes: Any) -> gx.Kernel:
    """A kernel of two arrays of 32-bit words, which the CPU computes so."""
    options: dict[str, Any] = {"inputs": 2, "outputs": 1, "dtypes": ["u4"] * 3, **changes}
    return gx.Kernel.from_spirv(spirv("vector_add_u32"), reference=reference, **options)


def watched(before: Callable[[], object]) -> Callable[[Array, Array], Array]:
    """An addition before which something is done."""

    def add(a: Array, b: Array) -> Array:
        before()
        return a + b

    return add


class HeldKernel:
    """An addition that waits on the CPU until it is let go; notes how many elements come."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.seen: list[int] = []
        self.kernel = kernel_of(self._add)

    def _add(self, a: Array, b: Array) -> Array:
        self.seen.append(len(a))
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return a + b

    def hold(self, executor: gx.GpuExecutor) -> Any:
        """A future of a call that is running, until it is let go."""
        future = executor.submit(self.kernel, *words(1))
        assert self.begun.wait(PATIENCE)
        return future


def words(count: int, first: int = 0) -> tuple[Array, Array]:
    """Two arrays for an addition."""
    a = np.arange(first, first + count, dtype=np.uint32)
    return a, a * np.uint32(7919)


def total(arrays: tuple[Array, Array]) -> Array:
    return np.asarray(arrays[0] + arrays[1])
