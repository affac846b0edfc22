"""Files in the cache folder: compiled pipelines and the device's calibration.

Each pipeline has a file of its own, written right after its compilation: a process that is killed
loses nothing, and nothing is merged. It has the name of the pipeline, which is a hash of all that
the driver compiles, and it starts with a magic word and a SHA-256 of the device's identity, that
name and the driver's data. A file that is truncated, corrupted or written for another device,
driver or pipeline does not match and is replaced. The digest protects against corruption, not
against whoever can write to the folder. All files are written atomically: readers see the old file
or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from gpu_executor.common.files import MAX_JSON_BYTES, read_own_file, write_atomically
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import GpuError
from gpu_executor.plan.calibration import VERSION, Calibration
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, vk
from gpu_executor.vulkan.device import Device

MAGIC = b"gxpipe2\n"
DIGEST_BYTES = 32
MAX_FILE_BYTES = 64 << 20
"""A larger file is neither read nor written."""
MAX_FOLDER_BYTES = 256 << 20
"""When the pipelines of a device take more, the files that were not used for the longest time are
deleted, until an eighth of this is free."""
log = logging.getLogger("gpu_executor.vulkan")


@dataclass(frozen=True, slots=True)
class DiskCacheStats:
    """The folder of compiled pipelines, and what was read from its files and written to them."""

    path: str | None
    pipelines_loaded: int
    pipelines_saved: int
    bytes_loaded: int
    bytes_saved: int
    """Bytes of driver data."""


class PipelineFiles:
    """The files of the pipelines of a device, or none. Safe from several threads."""

    def __init__(self, device: Device, folder: Path | None) -> None:
        """`folder` is the cache folder; with None nothing is read or written."""
        self._device = device
        self._folder = None if folder is None else pipeline_folder(folder, device.info)
        self._pipelines_loaded = self._pipelines_saved = 0
        self._bytes_loaded = self._bytes_saved = 0
        self._lock = threading.Lock()
        self._bytes_in_folder: int | None = None
        """What the files of the folder take; None until this process writes one."""

    @contextlib.contextmanager
    def open(self, name: str) -> Iterator[Handle]:
        """A VkPipelineCache with the driver's data of the pipeline of that name, for its
        compilation within the `with`. Afterwards the file is written, if the data is not what the
        file has."""
        if self._folder is None:
            yield vk.ffi.NULL
            return
        path = self._folder / f"{name}.bin"
        known = read_pipeline(path, self._device.info)
        cache = self._create(known)
        try:
            yield cache
            made = self._read(cache) or known
        finally:
            vk.vkDestroyPipelineCache(self._device.handle, cache, vk.ffi.NULL)
        if known:
            with self._lock:
                self._pipelines_loaded += 1
                self._bytes_loaded += len(known)
        if made != known and has_pipelines(made):
            self._save(path, made)

    def has(self, name: str) -> bool:
        """Whether there is a file of the pipeline of that name."""
        return self._folder is not None and (self._folder / f"{name}.bin").exists()

    def stats(self) -> DiskCacheStats:
        return DiskCacheStats(
            None if self._folder is None else str(self._folder),
            self._pipelines_loaded,
            self._pipelines_saved,
            self._bytes_loaded,
            self._bytes_saved,
        )

    def _create(self, data: bytes) -> Handle:
        arena = Arena()
        info = arena.new(
            "VkPipelineCacheCreateInfo",
            initialDataSize=len(data),
            pInitialData=vk.ffi.from_buffer(data) if data else vk.ffi.NULL,
        )
        cache = allocate_out("VkPipelineCache")
        vk.vkCreatePipelineCache(self._device.handle, info, vk.ffi.NULL, cache)
        return cache[0]

    def _read(self, cache: Handle) -> bytes:
        """The driver's data; empty if it cannot be read, which is logged: the pipeline is there."""
        try:
            return read_driver_data(self._device, cache)
        except GpuError as error:
            log.warning("the pipeline cache was not saved: %s", error)
            return b""

    def _save(self, path: Path, data: bytes) -> None:
        """Write a file. A failing write is logged; the next process compiles the pipeline again."""
        with self._lock:
            try:
                written = write_pipeline(path, self._device.info, data)
                if self._bytes_in_folder is None:
                    self._bytes_in_folder = sum(size for _, size, _ in list_files(path.parent))
                else:
                    self._bytes_in_folder += written
                if self._bytes_in_folder > MAX_FOLDER_BYTES:
                    self._bytes_in_folder = delete_oldest(path.parent, MAX_FOLDER_BYTES * 7 // 8)
            except OSError as error:
                log.warning("the pipeline cache was not saved: %s", error)
                return
            self._pipelines_saved += 1
            self._bytes_saved += len(data)


def read_driver_data(device: Device, cache: Handle) -> bytes:
    """The driver's data of a VkPipelineCache."""
    size = allocate_out("size_t")
    vk.vkGetPipelineCacheData(device.handle, cache, size, vk.ffi.NULL)
    data = vk.ffi.new("char[]", size[0])
    vk.vkGetPipelineCacheData(device.handle, cache, size, data)
    return bytes(vk.ffi.buffer(data, size[0]))


def has_pipelines(data: bytes) -> bool:
    """Whether a driver's data is more than its header, whose size is the first word: lavapipe's is
    not."""
    return len(data) > int.from_bytes(data[:4], "little")


def pipeline_folder(folder: Path, info: DeviceInfo) -> Path:
    """The folder of the pipelines of this device and driver."""
    return folder / f"pipelines-{fingerprint(info)}"


def fingerprint(info: DeviceInfo) -> str:
    """Return a short hash that identifies the device and its driver in file names."""
    return hashlib.sha256(_encode_identity(info)).hexdigest()[:16]


def read_pipeline(path: Path, info: DeviceInfo) -> bytes:
    """Read the driver's data of a pipeline, and note in the file's time that it was used; empty if
    the file is missing, damaged, or of another device or pipeline."""
    try:
        content = read_own_file(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return b""
    except OSError as error:
        log.warning("the pipeline cache was not read: %s", error)
        return b""
    start = len(MAGIC) + DIGEST_BYTES
    data = content[start:]
    if content[:start] != MAGIC + _hash_data(path.stem, info, data):
        log.warning("%s is not a pipeline of %s; it will be replaced", path, info.name)
        return b""
    with contextlib.suppress(OSError):
        os.utime(path)
    return data


def write_pipeline(path: Path, info: DeviceInfo, data: bytes) -> int:
    """Write the file atomically; return its number of bytes."""
    content = MAGIC + _hash_data(path.stem, info, data) + data
    if len(content) > MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"it would have more than {MAX_FILE_BYTES:,} bytes", str(path))
    write_atomically(path, content)
    return len(content)


def list_files(folder: Path) -> list[tuple[float, int, Path]]:
    """The files of a folder: when each was used, its bytes, and its path. Those that another
    process deletes meanwhile are left out."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, Path(entry.path)))
    return found


def delete_oldest(folder: Path, most: int) -> int:
    """Delete the files that were not used for the longest time, so that the others take `most`
    bytes at most; return what they take."""
    files = sorted(list_files(folder))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= most:
            break
        with contextlib.suppress(OSError):  # another process deletes too, or it is a folder
            path.unlink()
            total -= size
    return total


def _hash_data(name: str, info: DeviceInfo, data: bytes) -> bytes:
    return hashlib.sha256(_encode_identity(info) + name.encode() + data).digest()


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
