"""WebGPU devices: selects an adapter and opens it with the features and limits that it supports."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from gpu_executor.common.fork import (
    check_no_parent_gpus,
    register_at_fork,
    skip_driver_cleanup_at_exit,
)
from gpu_executor.device_info import DeviceInfo, Kind, Limits
from gpu_executor.errors import MissingExtraError, NoDeviceError
from gpu_executor.kernel import Grid

KINDS = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU", "Unknown", "CPU")
"""Adapter types, the preferred ones first."""
DEVICE_KINDS: dict[str, Kind] = {
    "DiscreteGPU": "discrete",
    "IntegratedGPU": "integrated",
    "VirtualGPU": "virtual",
    "CPU": "cpu",
}
"""The kind of device of each adapter type; the others are of kind "other"."""
BACKENDS = ("Vulkan", "Metal", "D3D12", "D3D11", "OpenGL")
"""APIs under WebGPU, the preferred ones first."""
LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
    "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y",
    "max-compute-workgroup-size-z",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-storage-size",
    "max-compute-workgroups-per-dimension",
)
"""The limits requested at the adapter's full values."""
SHADER_FEATURES = (
    "shader-f16",
    "shader-f64",
    "shader-i16",
    "shader-int64",
    "shader-int64-atomic-all-ops",
    "shader-int64-atomic-min-max",
    "shader-float32-atomic",
    "subgroup",
    "subgroup-barrier",
)
"""Features of WGSL beyond the standard, requested where the adapter has them."""
VULKAN_FEATURES = {
    "shader-int64": ("shaderInt64",),
    "shader-f64": ("shaderFloat64",),
    "subgroup": (
        "subgroup basic",
        "subgroup vote",
        "subgroup arithmetic",
        "subgroup ballot",
        "subgroup shuffle",
        "subgroup shuffle relative",
    ),
}
"""The names by which kernels are chosen, which are Vulkan's, for features of WebGPU."""
IMMEDIATES, IMMEDIATE_SIZE, IMMEDIATE_BYTES = "immediates", "max-immediate-size", 128
MAPPABLE = "mappable-primary-buffers"
"""The feature that lets kernels bind buffers that the host maps. It is not requested on a discrete
GPU, where every access of a kernel to such a buffer would cross the bus."""
SHARING_KINDS = ("IntegratedGPU", "CPU")
"""Adapter types that share the host's memory."""

SELECTION, SELECTION_OFF = "MESA_VK_DEVICE_SELECT", "NODEVICE_SELECT"
"""The variables that give Mesa's layer a device to select, and that turn the layer off."""

COMPLIANCE = ("Missing downlevel flags", "DownlevelCapabilities")
"""How wgpu-native's warnings begin that an adapter lacks features of drawing and of f16. Whoever
needs a feature asks for it, and the list of all that it has fills the screen."""
log = logging.getLogger("gpu_executor.webgpu")

_opening = threading.Lock()
"""Held while adapters are listed or opened: threads that list adapters at the same time crash the
process (in wgpu-hal's EGL)."""
_used = _used_by_parent = False
"""Whether this process has listed adapters; whether its parent had done so before fork()."""


class WebGpuDevice:
    """An open WebGPU device. Closing it frees everything that was made from it.

    `wanted` is the index of an adapter or a part of its name; without it the best adapter is
    opened.
    """

    def __init__(self, wanted: str | int | None = None) -> None:
        self.wgpu = _import_wgpu()
        with _opening:
            adapters = _list_adapters(self.wgpu)
            adapter = _select_adapter(adapters, wanted)
            self._open(adapter)
        self.info = self._describe(adapter, adapters.index(adapter))

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
        features = [name for name in SHADER_FEATURES if name in adapter.features]
        if self.immediates:
            features.append(IMMEDIATES)
        if self.shares_memory:
            features.append(MAPPABLE)
        with _keep_from_warning():
            self.device: Any = adapter.request_device_sync(
                required_features=features, required_limits=limits
            )
        self.limits: dict[str, int] = limits

    def _describe(self, adapter: Any, index: int) -> DeviceInfo:
        info, limits = adapter.info, self.limits
        # wgpu-py 0.32 spells the names of these two in its own way.
        subgroup = info.get("subgroup_min_size", info.get("stackgroup_min_size", 0))
        axes = [limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz"]
        return DeviceInfo(
            index=index,
            name=self.name,
            kind=DEVICE_KINDS.get(self.kind, "other"),
            vendor=info["vendor"],
            driver=f"wgpu-native on {self.backend}",
            driver_version=info["description"],
            api_version=(0, 0, 0),
            uuid="",
            heaps=(),
            queue_families=(),
            limits=Limits(
                max_storage_buffer_range=self.max_binding_bytes,
                max_uniform_buffer_range=adapter.limits["max-uniform-buffer-binding-size"],
                max_allocation=self.max_buffer_bytes,
                max_work_group_invocations=limits["max-compute-invocations-per-workgroup"],
                max_work_group_size=(axes[0], axes[1], axes[2]),
                max_work_group_count=(self.max_groups, self.max_groups, self.max_groups),
                max_shared_memory=limits["max-compute-workgroup-storage-size"],
                max_push_constants=limits.get(IMMEDIATE_SIZE, 0),
                max_bound_buffers=limits["max-storage-buffers-per-shader-stage"],
                buffer_offset_alignment=adapter.limits["min-storage-buffer-offset-alignment"],
                non_coherent_atom=1,
                subgroup_size=subgroup,
                min_subgroup_size=subgroup,
                timestamp_period_ns=0.0,
                host_import_alignment=0,
            ),
            features=_name_features(adapter.features),
            extensions=frozenset(),
            pipeline_cache_uuid="",
        )

    @property
    def is_software(self) -> bool:
        """Whether the host's CPU does the work of the device."""
        return self.kind == "CPU"

    @property
    def max_binding_bytes(self) -> int:
        """The largest array that a kernel can bind, in bytes."""
        return self.limits["max-storage-buffer-binding-size"]

    @property
    def max_buffer_bytes(self) -> int:
        """The largest buffer, in bytes."""
        return self.limits["max-buffer-size"]

    @property
    def max_groups(self) -> int:
        """The most work-groups in one dimension of a grid."""
        return self.limits["max-compute-workgroups-per-dimension"]

    @property
    def parameter_usage(self) -> int:
        """The usage of a buffer of parameters, for a device without immediates: WGSL texts bind it
        as uniform, modules of SPIR-V as storage."""
        usage = self.wgpu.BufferUsage
        flags: int = usage.UNIFORM | usage.STORAGE | usage.COPY_DST
        return flags

    def create_layout(self, types: Sequence[str]) -> Any:
        """Create the layout of bind groups with buffers of these types, at bindings 0, 1, ..."""
        return self.device.create_bind_group_layout(
            entries=[
                {"binding": index, "visibility": "COMPUTE", "buffer": {"type": type_}}
                for index, type_ in enumerate(types)
            ]
        )

    def bind(self, layout: Any, ranges: Sequence[tuple[Any, int, int]]) -> Any:
        """Create a bind group of ranges of buffers (buffer, offset, bytes)."""
        return self.device.create_bind_group(
            layout=layout,
            entries=[
                {"binding": index, "resource": {"buffer": buffer, "offset": offset, "size": size}}
                for index, (buffer, offset, size) in enumerate(ranges)
            ],
        )

    def spread_groups(self, groups: int) -> Grid:
        """Return a grid of at least that many work-groups, in several rows if one is too long."""
        limit = self.max_groups
        return (groups, 1, 1) if groups <= limit else (limit, -(-groups // limit), 1)

    def is_lost(self) -> bool:
        """Test whether the device is lost, by creating a small buffer."""
        try:
            self.device.create_buffer(size=4, usage="COPY_DST").destroy()
        except Exception as error:
            return "device is lost" in str(error)
        return False

    def close(self) -> None:
        """Destroy the device."""
        self.device.destroy()


def _name_features(features: Iterable[str]) -> frozenset[str]:
    """The features of an adapter, with Vulkan's names for those that kernels are chosen by."""
    named = [name for each in features for name in VULKAN_FEATURES.get(each, ())]
    return frozenset((*features, *named))


def find_adapters() -> list[tuple[str, str]]:
    """Return the name and the type of every adapter, the best first."""
    wgpu = _import_wgpu()
    with _opening:
        adapters = _list_adapters(wgpu)
    return [(adapter.info["device"], adapter.info["adapter_type"]) for adapter in adapters]


def find_adapters_with(feature: str) -> list[str]:
    """Return the names of the adapters that have a feature."""
    wgpu = _import_wgpu()
    with _opening:
        return [each.info["device"] for each in _list_adapters(wgpu) if feature in each.features]


def _import_wgpu() -> Any:
    try:
        import wgpu
    except ImportError as error:
        raise MissingExtraError("WebGPU", "wgpu-py", "webgpu", str(error)) from None
    if _used_by_parent:
        # A process has one WebGPU instance. The child's is a copy of the parent's, and its devices
        # wait for threads that exist only in the parent (wgpu-native 29 on lavapipe).
        raise NoDeviceError(
            "WebGPU was in use in the parent process before fork(), so it cannot be used in this "
            "child: start children with multiprocessing's 'spawn'"
        )
    check_no_parent_gpus("WebGPU")
    return wgpu


def _list_adapters(wgpu: Any) -> list[Any]:
    """Return every adapter, the best first."""
    global _used  # noqa: PLW0603 - a process has one WebGPU instance
    _used = True

    def rank(adapter: Any) -> tuple[int, int]:
        kind, backend = adapter.info["adapter_type"], adapter.info["backend_type"]
        return (
            KINDS.index(kind) if kind in KINDS else len(KINDS),
            BACKENDS.index(backend) if backend in BACKENDS else len(BACKENDS),
        )

    with _keep_from_wayland():
        try:
            adapters = wgpu.gpu.enumerate_adapters_sync()
        except (OSError, RuntimeError) as error:  # wgpu-py has a library for each system
            raise NoDeviceError(
                f"wgpu-py does not list adapters: {error}. Install wgpu-py for this system again"
            ) from error
        return sorted(adapters, key=rank)


@contextlib.contextmanager
def _keep_from_warning() -> Iterator[None]:
    """Log wgpu's warnings of `COMPLIANCE` at DEBUG while it opens a device."""

    def is_other(record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if not text.startswith(COMPLIANCE):
            return True
        log.debug("%s", text)
        return False

    logger = logging.getLogger("wgpu")
    logger.addFilter(is_other)
    try:
        yield
    finally:
        logger.removeFilter(is_other)


@contextlib.contextmanager
def _keep_from_wayland() -> Iterator[None]:
    """Turn Mesa's layer VK_LAYER_MESA_device_select off while wgpu creates its instance, if there
    is no Wayland compositor. The instance could show windows, so the layer asks the compositor for
    its GPU, and without XDG_RUNTIME_DIR libwayland writes an error to stderr each time."""
    asked = any(os.environ.get(name) for name in (SELECTION_OFF, SELECTION))
    if asked or Path(os.environ.get("XDG_RUNTIME_DIR", "")).is_absolute():
        yield
        return
    before = os.environ.get(SELECTION_OFF)
    os.environ[SELECTION_OFF] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SELECTION_OFF]
        else:
            os.environ[SELECTION_OFF] = before


def _select_adapter(adapters: list[Any], wanted: str | int | None) -> Any:
    """Return the adapter with an index or with a part of its name; the best one for None."""
    if not adapters:
        raise NoDeviceError("WebGPU finds no adapter; check that a driver for the GPU is installed")
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
        if str(wanted).lower() in name.lower():
            return adapter
    raise NoDeviceError(f"no adapter matches {wanted!r}; there are {', '.join(names)}")


def _note_fork() -> None:
    """Refuse WebGPU in a forked child if the parent had used it."""
    global _used_by_parent  # noqa: PLW0603 - a process has one WebGPU instance
    _used_by_parent = _used
    if _used:
        skip_driver_cleanup_at_exit()
    _opening.release()


register_at_fork(
    before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_note_fork
)
