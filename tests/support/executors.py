"""For tests of executors: kernels whose computation on the CPU a test can hold or watch, and
fixtures. Who imports a fixture names it in `__all__`, as it is used by its name alone."""

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


def kernel_of(reference: Callable[..., Any], **changes: Any) -> gx.Kernel:
    """A kernel of two arrays of 32-bit words, which the CPU computes so."""
    options: dict[str, Any] = {"inputs": 2, "outputs": 1, "dtypes": ["u4"] * 3, **changes}
    return gx.Kernel.from_spirv(load_spirv("vector_add_u32"), reference=reference, **options)


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


@pytest.fixture(scope="module", params=BACKENDS)
def executor(request: pytest.FixtureRequest) -> Iterator[gx.GpuExecutor]:
    """One of each backend, for tests that do not shut it down."""
    with gx.GpuExecutor(request.param) as opened:
        yield opened


@pytest.fixture
def cpu() -> Iterator[gx.GpuExecutor]:
    with gx.GpuExecutor("cpu") as opened:
        yield opened


@pytest.fixture
def held() -> Iterator[HeldKernel]:
    """Let go at the end, so that executors can shut down."""
    kernel = HeldKernel()
    yield kernel
    kernel.let_go.set()


def words(count: int, first: int = 0) -> tuple[Array, Array]:
    """Two arrays for an addition."""
    a = np.arange(first, first + count, dtype=np.uint32)
    return a, a * np.uint32(7919)


def total(arrays: tuple[Array, Array]) -> Array:
    return np.asarray(arrays[0] + arrays[1])


class Between:
    """Stands before a backend; something is done before its calls, with their elements."""

    def __init__(self, backend: Backend, before: Callable[[int], object]) -> None:
        self._backend, self._before = backend, before

    def run(self, kernel: gx.Kernel, *arrays: Array, out: Any = None) -> Any:
        self._before(len(arrays[0]))
        return self._backend.run(kernel, *arrays, out=out)

    def run_batch(self, kernel: gx.Kernel, jobs: Any, *, out: Any = None) -> list[Any]:
        self._before(sum(len(job[0]) for job in jobs))
        return self._backend.run_batch(kernel, jobs, out=out)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def put_before(executor: gx.GpuExecutor, who: int, before: Callable[[int], object]) -> None:
    """Something is done before the calls of one of its devices."""
    device = executor._devices[who]
    device.backend = cast(Backend, Between(device.backend, before))


def let_meet(executor: gx.GpuExecutor) -> None:
    """Neither of its two devices runs anything before both have taken something, however busy the
    machine is."""
    came = threading.Event(), threading.Event()

    def meet(who: int) -> Callable[[int], None]:
        def wait(_elements: int) -> None:
            came[who].set()
            assert came[1 - who].wait(PATIENCE)

        return wait

    for who in (0, 1):
        put_before(executor, who, meet(who))


def lose(_elements: int) -> None:
    """As a device that is lost does."""
    raise DeviceLostError("vkQueueSubmit", -4, "VK_ERROR_DEVICE_LOST")
