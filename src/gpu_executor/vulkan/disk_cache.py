"""The driver's pipeline cache, kept on disk between processes.

A file begins with a magic word and a SHA-256 over the device's identity and the driver's data, so
one that is truncated, corrupted or another device's or driver's does not match and is replaced. It
is written beside its place and moved there in one step: whoever reads sees an old file or a new
one.

A device's figures on disk, beside its pipeline cache.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from gpu_executor.calibration import Calibration
from gpu_executor.device_info import DeviceInfo
from gpu_executor.files import write_atomically
from gpu_executor.vulkan.binding import Arena, Handle, out, vk
from gpu_executor.vulkan.device import Device

MAGIC = b"gxpipe1\n"
DIGEST_BYTES = 32
log = logging.getLogger("gpu_executor.vulkan")


@dataclass(frozen=True, slots=True)
class DiskCacheStats:
    """Where the cache lies, and the bytes that were read from it and written to it."""

    path: str | None
    bytes_loaded: int
    bytes_saved: int


class DriverCache:
    """A VkPipelineCache that starts from a file and can be saved to it."""

    def __init__(self, device: Device, folder: Path | None) -> None:
        self._device = device
        self._path = None if folder is None else cache_path(folder, device.info)
        data = b"" if self._path is None else read_cache(self._path, device.info)
        self._loaded, self._saved = len(data), 0
        arena = Arena()
        info = arena.new(
            "VkPipelineCacheCreateInfo",
            initialDataSize=len(data),
            pInitialData=vk.ffi.from_buffer(data) if data else vk.ffi.NULL,
        )
        cache = out("VkPipelineCache")
        vk.vkCreatePipelineCache(device.handle, info, vk.ffi.NULL, cache)
        self.handle: Handle = cache[0]

    def save(self) -> None:
        """Write what the driver has now; where the disk refuses, the cache is lost and no more."""
        if self._path is None:
            return
        try:
            self._saved = write_cache(self._path, self._device.info, self._data())
        except OSError as error:
            log.warning("the pipeline cache was not saved: %s", error)

    def close(self) -> None:
        vk.vkDestroyPipelineCache(self._device.handle, self.handle, vk.ffi.NULL)

    def stats(self) -> DiskCacheStats:
        path = None if self._path is None else str(self._path)
        return DiskCacheStats(path, self._loaded, self._saved)

    def _data(self) -> bytes:
        size = out("size_t")
        vk.vkGetPipelineCacheData(self._device.handle, self.handle, size, vk.ffi.NULL)
        data = vk.ffi.new("char[]", size[0])
        vk.vkGetPipelineCacheData(self._device.handle, self.handle, size, data)
        return bytes(vk.ffi.buffer(data, size[0]))


def cache_path(folder: Path, info: DeviceInfo) -> Path:
    return folder / f"pipelines-{fingerprint(info)}.bin"


def fingerprint(info: DeviceInfo) -> str:
    """What tells the files of devices and drivers apart."""
    return hashlib.sha256(_identity(info)).hexdigest()[:16]


def read_cache(path: Path, info: DeviceInfo) -> bytes:
    """The driver's data, or nothing where the file is not a whole one of this device and driver."""
    try:
        content = path.read_bytes()
    except OSError:
        return b""
    start = len(MAGIC) + DIGEST_BYTES
    data = content[start:]
    if content[:start] != MAGIC + _digest(info, data):
        log.warning("%s is not a pipeline cache of %s; it will be replaced", path, info.name)
        return b""
    return data


def write_cache(path: Path, info: DeviceInfo, data: bytes) -> int:
    """Write the file in one step; returns the bytes of driver data in it."""
    write_atomically(path, MAGIC + _digest(info, data) + data)
    return len(data)


def _digest(info: DeviceInfo, data: bytes) -> bytes:
    return hashlib.sha256(_identity(info) + data).digest()


def _identity(info: DeviceInfo) -> bytes:
    parts = (info.uuid, info.driver, info.driver_version, info.pipeline_cache_uuid)
    return "\0".join(parts).encode()


def calibration_path(folder: Path, info: DeviceInfo) -> Path:
    """One file per device and driver."""
    return folder / f"calibration-{fingerprint(info)}.json"


def read_calibration(folder: Path, info: DeviceInfo) -> Calibration | None:
    """The figures that were kept; None where there are none, or none that can be read."""
    path = calibration_path(folder, info)
    try:
        return Calibration.from_json(path.read_text("utf-8"))
    except OSError:
        return None
    except ValueError as error:
        log.warning("%s holds no figures of %s, and will be replaced: %s", path, info.name, error)
        return None


def write_calibration(folder: Path, info: DeviceInfo, calibration: Calibration) -> None:
    """Where the disk refuses, they are not kept and no more."""
    try:
        write_atomically(calibration_path(folder, info), calibration.to_json().encode())
    except OSError as error:
        log.warning("the device's figures were not kept: %s", error)
