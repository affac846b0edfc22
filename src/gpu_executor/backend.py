"""The interface of a backend, and the names of all backends.

A backend runs kernels on NumPy arrays with one technology. Each backend is a package of its own and
is imported when it is opened, so a missing driver or library affects no other backend.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol

from gpu_executor.call import Array
from gpu_executor.errors import SettingsError
from gpu_executor.kernel import Kernel

BACKENDS = {
    "vulkan": "gpu_executor.vulkan.persistent:PersistentVulkanBackend",
    "vulkan-one-shot": "gpu_executor.vulkan.one_shot:VulkanSpirvBackend",
    "webgpu": "gpu_executor.webgpu.executor:WgpuExecutor",
    "cpu": "gpu_executor.cpu.backend:CpuBackend",
}


class Backend(Protocol):
    """The methods that every backend has."""

    def run(
        self,
        kernel: Kernel,
        *arrays: Array,
        out: Any = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Run a kernel on its inputs and in-out arguments. Returns its output or in-out argument,
        or a tuple of several; they are written to `out` if it is given. `params` are the values of
        the kernel's parameters, and `out_shape` replaces the kernel's."""

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Sequence[Sequence[Array]],
        *,
        out: Sequence[Any] | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Run a kernel on jobs, each a tuple of arrays. Returns one result per job, in order.
        `params` serves all jobs; a list has one entry for each job."""

    def run_field_add(self, a: Array, b: Array) -> Array:
        """Add elements of the BLS12-381 base field, arrays of shape (n, 6) and dtype `uint64`."""

    def stats(self) -> Any:
        """Counts of the backend's calls and of the resources that it holds."""

    def close(self) -> None:
        """Free all of the backend's resources."""

    def __enter__(self) -> Backend: ...

    def __exit__(self, *exception: Any) -> None: ...


def open_backend(name: str, **options: Any) -> Backend:
    """Open the backend of this name in `BACKENDS`; `options` are its constructor's arguments."""
    if name not in BACKENDS:
        raise SettingsError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)(**options)
    return backend
