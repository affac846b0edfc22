"""Executors for tests: fixtures, and kernels and backends that a test can block or observe.

A test module that imports a fixture lists it in `__all__`, since pytest uses it by name only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend
from gpu_executor.errors import DeviceLostError
from gpu_executor.executor.candidates import BackendName
from gpu_executor.kernels.modules import load_spirv
from tests.support.threads import PATIENCE

Array = npt.NDArray[Any]
BACKENDS: tuple[BackendName, ...] = ("vulkan", "webgpu", "cpu")
ADD = gx.kernels.load("vector_add_u32")
FQ_ADD = gx.kernels.load("bls12_381_fq_add")


def make_kernel(reference: Callable[..., Any], **changes: Any) -> gx.Kernel:
    """A kernel of two arrays of 32-bit words, with the given CPU reference."""
    options = {"buffers": "in u4, in u4, out u4", "split": "elements", **changes}
    return gx.Kernel.from_spirv(
        load_spirv("vector_add_u32"), count=True, reference=reference, **options
    )


def make_addition(before: Callable[[], object]) -> Callable[[Array, Array], Array]:
    """A reference that adds, and calls `before` first."""

    def add(a: Array, b: Array) -> Array:
        before()
        return a + b

    return add


class HeldKernel:
    """An addition that blocks on the CPU until `released` is set. `seen` lists the number of
    elements of each call."""

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()
        self.seen: list[int] = []
        self.kernel = make_kernel(self._add)

    def _add(self, a: Array, b: Array) -> Array:
        self.seen.append(len(a))
        self.begun.set()
        assert self.released.wait(PATIENCE)
        return a + b

    def hold(self, executor: gx.GpuExecutor) -> Any:
        """Submit a call that runs until `released` is set, and return its future."""
        future = executor.submit(self.kernel, *words(1))
        assert self.begun.wait(PATIENCE)
        return future


@pytest.fixture(scope="module", params=BACKENDS)
def executor(request: pytest.FixtureRequest) -> Iterator[gx.GpuExecutor]:
    """An executor of each backend, for tests that do not shut it down."""
    with gx.GpuExecutor(request.param) as opened:
        yield opened


@pytest.fixture
def cpu() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("cpu") as opened:
        yield opened


@pytest.fixture
def held() -> Iterator[HeldKernel]:
    """A kernel that is released at the end of the test, so that executors can shut down."""
    kernel = HeldKernel()
    yield kernel
    kernel.released.set()


def words(count: int, first: int = 0) -> tuple[Array, Array]:
    """Two arrays to add."""
    a = np.arange(first, first + count, dtype=np.uint32)
    return a, a * np.uint32(7919)


def total(arrays: tuple[Array, Array]) -> Array:
    return np.asarray(arrays[0] + arrays[1])


class InterposedBackend:
    """A backend that calls `before`, with the number of elements, before each call of another
    backend."""

    def __init__(self, backend: Backend, before: Callable[[int], object]) -> None:
        self._backend, self._before = backend, before

    def run(self, kernel: gx.Kernel, *arrays: Array, **options: Any) -> Any:
        self._before(len(arrays[0]))
        return self._backend.run(kernel, *arrays, **options)

    def run_batch(self, kernel: gx.Kernel, jobs: Any, **options: Any) -> list[Any]:
        self._before(sum(len(job[0]) for job in jobs))
        return self._backend.run_batch(kernel, jobs, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def call_before(
    executor: gx.GpuExecutor, device_index: int, before: Callable[[int], object]
) -> None:
    """Call `before`, with the number of elements, before each call on one device."""
    device = executor._devices[device_index]
    device.backend = cast(Backend, InterposedBackend(device.backend, before))


def synchronize_devices(executor: gx.GpuExecutor) -> None:
    """Block each of two devices in its first call until the other one has a call too."""
    came = threading.Event(), threading.Event()

    def meet(device_index: int) -> Callable[[int], None]:
        def wait(_elements: int) -> None:
            came[device_index].set()
            assert came[1 - device_index].wait(PATIENCE)

        return wait

    for device_index in (0, 1):
        call_before(executor, device_index, meet(device_index))


def lose(_elements: int) -> None:
    """Fail like a lost device."""
    raise DeviceLostError("vkQueueSubmit", -4, "VK_ERROR_DEVICE_LOST")
