"""Files in the cache folder: the driver's pipeline cache and the device's calibration.

A pipeline cache file starts with a magic word and a SHA-256 of the device's identity and the
driver's data. A file that is truncated, corrupted or written for another device or driver does not
match and is replaced. The digest protects against corruption, not against whoever can write to the
folder. Both files are written atomically: readers see the old file or the new one.
"""

from __future__ import annotations

import errno
import hashlib
import logging
from pathlib import Path

from gpu_executor.common.files import MAX_JSON_BYTES, read_own_file, write_atomically
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.plan.calibration import VERSION, Calibration
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device

MAGIC = b"gxpipe1\n"
DIGEST_BYTES = 32
MAX_CACHE_BYTES = 256 << 20
"""A larger file is neither read nor written."""
log = logging.getLogger("gpu_executor.vulkan")


@dataclass(frozen=True, slots=True)
class DiskCacheStats:
    """The path of the pipeline cache, and the bytes of driver data read and written."""

    path: str | None
    bytes_loaded: int
    bytes_saved: int


class DriverCache:
    """A VkPipelineCache that is loaded from a file and saved to it."""

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
        cache = allocate_out("VkPipelineCache")
        vk.vkCreatePipelineCache(device.handle, info, vk.ffi.NULL, cache)
        self.handle: Handle = cache[0]

    def save(self) -> None:
        """Write the driver's data to the file.

        A failing write is logged; the cache is then lost.
        """
        if self._path is None:
            return
        try:
            self._saved = write_cache(self._path, self._device.info, self._read_data())
        except OSError as error:
            log.warning("the pipeline cache was not saved: %s", error)

    def close(self) -> None:
        vk.vkDestroyPipelineCache(self._device.handle, self.handle, vk.ffi.NULL)

    def stats(self) -> DiskCacheStats:
        path = None if self._path is None else str(self._path)
        return DiskCacheStats(path, self._loaded, self._saved)

    def _read_data(self) -> bytes:
        size = allocate_out("size_t")
        vk.vkGetPipelineCacheData(self._device.handle, self.handle, size, vk.ffi.NULL)
        data = vk.ffi.new("char[]", size[0])
        vk.vkGetPipelineCacheData(self._device.handle, self.handle, size, data)
        return bytes(vk.ffi.buffer(data, size[0]))


def cache_path(folder: Path, info: DeviceInfo) -> Path:
    return folder / f"pipelines-{fingerprint(info)}.bin"


def fingerprint(info: DeviceInfo) -> str:
    """Return a short hash that identifies the device and its driver in file names."""
    return hashlib.sha256(_encode_identity(info)).hexdigest()[:16]


def read_cache(path: Path, info: DeviceInfo) -> bytes:
    """Read the driver's data; empty if the file is missing, damaged or of another device."""
    try:
        content = read_own_file(path, MAX_CACHE_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        log.warning("the pipeline cache was not read: %s", error)
        return b""
    start = len(MAGIC) + DIGEST_BYTES
    data = content[start:]
    if content[:start] != MAGIC + _hash_data(info, data):
        log.warning("%s is not a pipeline cache of %s; it will be replaced", path, info.name)
        return b""
    return data


def write_cache(path: Path, info: DeviceInfo, data: bytes) -> int:
    """Write the file atomically; return the number of bytes of driver data."""
    content = MAGIC + _hash_data(info, data) + data
    if len(content) > MAX_CACHE_BYTES:
        raise OSError(errno.EFBIG, f"it would have more than {MAX_CACHE_BYTES:,} bytes", str(path))
    write_atomically(path, content)
    return len(data)


def _hash_data(info: DeviceInfo, data: bytes) -> bytes:
    return hashlib.sha256(_encode_identity(info) + data).digest()


def _encode_identity(info: DeviceInfo) -> bytes:
    parts = (info.uuid, info.driver, info.driver_version, info.pipeline_cache_uuid)
    return "\0".join(parts).encode()


def calibration_path(folder: Path, info: DeviceInfo) -> Path:
    """Return the path of the calibration of this device and driver. Each version of the format has
    files of its own, so that another version of this package is not in the way."""
    return folder / f"calibration-v{VERSION}-{fingerprint(info)}.json"


def read_calibration(folder: Path, info: DeviceInfo) -> Calibration | None:
    """Read the stored calibration; None if there is none or it cannot be read."""
    path = calibration_path(folder, info)
    try:
        return Calibration.from_json(read_own_file(path, MAX_JSON_BYTES).decode())
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the calibration was not read: %s", error)
        return None
    except ValueError as error:
        log.warning(
            "%s is not a calibration of %s and will be replaced: %s", path, info.name, error
        )
        return None


def write_calibration(folder: Path, info: DeviceInfo, calibration: Calibration) -> None:
    """Store the calibration. A failing write is logged; the calibration is then not stored."""
    try:
        write_atomically(calibration_path(folder, info), calibration.to_json().encode())
    except OSError as error:
        log.warning("the calibration was not stored: %s", error)
