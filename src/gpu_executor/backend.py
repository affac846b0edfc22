"""What a backend is, and the one place that names them.

A backend runs kernels on NumPy arrays. Each lives in a package of its own and is imported when it
is asked for, so that a missing driver or library matters only to whoever wants that backend.
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
    """What every backend can do."""

    def run(self, kernel: Kernel, *arrays: Array, out: Any = None) -> Any:
        """Run a kernel on arrays; its output, or a tuple of several, in `out` if that is given."""

    def run_batch(
        self, kernel: Kernel, jobs: Sequence[Sequence[Array]], *, out: Sequence[Any] | None = None
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order."""

    def run_field_add(self, a: Array, b: Array) -> Array:
        """Add BLS12-381 base-field elements, (n, 6) `uint64`."""

    def stats(self) -> Any:
        """What it has done and what it holds."""

    def close(self) -> None:
        """Free everything."""

    def __enter__(self) -> Backend: ...

    def __exit__(self, *exception: Any) -> None: ...


def open_backend(name: str, **options: Any) -> Backend:
    """Open a backend by its name in `BACKENDS`, with that backend's own options."""
    if name not in BACKENDS:
        raise SettingsError(f"there is no backend {name!r}; there are {', '.join(BACKENDS)}")
    module, _, attribute = BACKENDS[name].partition(":")
    backend: Backend = getattr(importlib.import_module(module), attribute)(**options)
    return backend
