"""A WebGPU device: which adapter, opened with which features and limits."""

from __future__ import annotations

import os
import threading
from typing import Any

from gpu_executor.errors import NoDeviceError
from gpu_executor.forking import refuse_gpus_of_parent, skip_drivers_at_exit

KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")
BACKENDS = ("Vulkan", "Metal", "D3D12", "D3D11", "OpenGL")
"""Best first."""
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-size-x",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
)
_opening = threading.Lock()
"""Adapters that are looked for in several threads at once end the process (in wgpu-hal's EGL)."""
_used = _left_to_parent = False
"""Whether this process has looked for adapters; whether its parent had, before fork()."""
IMMEDIATES, IMMEDIATE_SIZE, IMMEDIATE_BYTES = "immediates", "max-immediate-size", 128
MAPPABLE = "mappable-primary-buffers"
"""Kernels may bind what the host maps. Not asked for on a GPU with memory of its own, where a
kernel would reach over the bus for every access."""
SHARING_KINDS = ("IntegratedGPU", "CPU")


class WebGpuDevice:
    """Opened at once; everything made from it goes when it is closed."""

    def __init__(self, wanted: str | int | None = None) -> None:
        self.wgpu = _import_wgpu()
        with _opening:
            self._open(_choose(_adapters(self.wgpu), wanted))

    def _open(self, adapter: Any) -> None:
        info = adapter.info
        self.name: str = info["device"]
        self.kind: str = info["adapter_type"]
        self.backend: str = info["backend_type"]
        self.immediates = (
            IMMEDIATES in adapter.features
            and adapter.limits.get(IMMEDIATE_SIZE, 0) >= IMMEDIATE_BYTES
        )
        self.shares_memory = MAPPABLE in adapter.features and self.kind in SHARING_KINDS
        limits = {name: adapter.limits[name] for name in LIMITS}
        if self.immediates:
            limits[IMMEDIATE_SIZE] = IMMEDIATE_BYTES
        wanted = {IMMEDIATES: self.immediates, MAPPABLE: self.shares_memory}
        self.device: Any = adapter.request_device_sync(
            required_features=[name for name, has in wanted.items() if has],
            required_limits=limits,
        )
        self.limits: dict[str, int] = limits

    @property
    def is_software(self) -> bool:
        return self.kind == "CPU"

    @property
    def most_bound(self) -> int:
        """Bytes of one array that a kernel sees."""
        return self.limits["max-storage-buffer-binding-size"]

    @property
    def most_in_buffer(self) -> int:
        """Bytes of one buffer."""
        return self.limits["max-buffer-size"]

    def is_lost(self) -> bool:
        """Ask, by making the smallest thing there is; where that fails, why is in the error."""
        try:
            self.device.create_buffer(size=4, usage="COPY_DST").destroy()
        except Exception as error:
            return "device is lost" in str(error)
        return False

    def close(self) -> None:
        self.device.destroy()


def find_adapters() -> list[tuple[str, str]]:
    """Name and kind of every adapter, best first."""
    wgpu = _import_wgpu()
    with _opening:
        adapters = _adapters(wgpu)
    return [(adapter.info["device"], adapter.info["adapter_type"]) for adapter in adapters]


def _import_wgpu() -> Any:
    try:
        import wgpu
    except ImportError as error:
        raise NoDeviceError(
            f"WebGPU needs wgpu-py: pip install 'gpu-executor[webgpu]' ({error})"
        ) from None
    if _left_to_parent:
        # Its one instance is the parent's, and a device from it waits for threads that the child
        # does not have: seen with wgpu-native 29 on lavapipe.
        raise NoDeviceError(
            "WebGPU was in use in the parent process before fork(), and cannot be used in the "
            "child: start children with multiprocessing's 'spawn'"
        )
    refuse_gpus_of_parent("WebGPU")
    return wgpu


def _adapters(wgpu: Any) -> list[Any]:
    """Every adapter, best first."""
    global _used  # noqa: PLW0603 - there is one instance in a process
    _used = True

    def rank(adapter: Any) -> tuple[int, int]:
        kind, backend = adapter.info["adapter_type"], adapter.info["backend_type"]
        return (
            KINDS.index(kind) if kind in KINDS else len(KINDS),
            BACKENDS.index(backend) if backend in BACKENDS else len(BACKENDS),
        )

    return sorted(wgpu.gpu.enumerate_adapters_sync(), key=rank)


def _in_child() -> None:
    global _left_to_parent  # noqa: PLW0603
    _left_to_parent = _used
    if _used:
        skip_drivers_at_exit()
    _opening.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_in_child
    )


def _choose(adapters: list[Any], wanted: str | int | None) -> Any:
    if not adapters:
        raise NoDeviceError("WebGPU finds no adapter; is there a driver for the GPU?")
    if wanted is None:
        return adapters[0]
    names = [f"{adapter.info['device']} ({adapter.info['backend_type']})" for adapter in adapters]
    if isinstance(wanted, str) and wanted.isdecimal():
        wanted = int(wanted)
    if isinstance(wanted, int):
        if not 0 <= wanted < len(adapters):
            raise NoDeviceError(f"there is no adapter {wanted}; there are {', '.join(names)}")
        return adapters[wanted]
    for adapter, name in zip(adapters, names, strict=True):
        if wanted.lower() in name.lower():
            return adapter
    raise NoDeviceError(f"no adapter matches {wanted!r}; there are {', '.join(names)}")
