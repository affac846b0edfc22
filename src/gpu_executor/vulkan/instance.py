"""The Vulkan instance: opens the loader, enables validation, finds and ranks physical devices."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from gpu_executor.common.fork import check_no_parent_gpus
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import DeviceNotFoundError, NoDeviceError, VulkanError
from gpu_executor.version import __version__
from gpu_executor.vulkan.binding import Arena, Handle, allocate_out, enumerate_with, loader_lock, vk
from gpu_executor.vulkan.device import describe_device, unpack_version

VALIDATION_LAYER = "VK_LAYER_KHRONOS_validation"
API_VERSION = 1 << 22 | 3 << 12  # Vulkan 1.3
INDEX_DIGITS = 3
PORTABILITY_ENUMERATION = "VK_KHR_portability_enumeration"
"""The loader's extension by which an instance has the drivers that implement a subset of Vulkan:
MoltenVK, on macOS."""
PORTABILITY_SINCE = (1, 3, 207)
"""The version that has the extension. An older loader has these drivers without being asked. The
loader is not asked for its extensions, which takes 3 ms. MoltenVK without a loader, and the loader
of Android, refuse the extension."""
RANK = ("discrete", "integrated", "virtual", "cpu", "other")
"""Kinds of devices, best first."""
log = logging.getLogger("gpu_executor.vulkan")


class Instance:
    """An open VkInstance.

    `validation=True` enables the Khronos validation layer and collects its messages.
    """

    def __init__(self, *, validation: bool = False) -> None:
        self.validation = validation
        self.messages: list[str] = []
        """Warnings and errors of the validation layer."""
        self._devices: list[tuple[Handle, DeviceInfo]] | None = None
        check_no_parent_gpus("Vulkan")
        self._callback = _make_message_callback(self.messages) if validation else None
        self._messenger: Handle | None = None
        with loader_lock:
            self._open(validation=validation)

    def _open(self, *, validation: bool) -> None:
        arena = Arena()
        messenger = self._make_messenger_info(arena) if validation else vk.ffi.NULL
        self.handle = _create(arena, messenger, validation=validation)
        if validation:
            try:
                self._messenger = self._add_messenger(messenger)
            except BaseException as error:
                self.close()
                if isinstance(error, VulkanError):
                    # Without a driver the loader may create an instance that supports nothing.
                    raise explain_missing_driver(error) from error
                raise

    def close(self) -> None:
        if self.handle is None:
            return
        with loader_lock:
            if self._messenger is not None:
                destroy = vk.load_extension(self.handle, "vkDestroyDebugUtilsMessengerEXT")
                destroy(self.handle, self._messenger, vk.ffi.NULL)
            vk.vkDestroyInstance(self.handle, vk.ffi.NULL)
        self.handle = self._messenger = None

    def devices(self) -> list[tuple[Handle, DeviceInfo]]:
        """Return every physical device and its description, best first. They are read once."""
        if self._devices is None:
            self._devices = self._read_devices()
        return self._devices

    def _read_devices(self) -> list[tuple[Handle, DeviceInfo]]:
        with loader_lock:
            found = enumerate_with(vk.vkEnumeratePhysicalDevices, "VkPhysicalDevice", self.handle)
            described = [(handle, describe_device(handle)) for handle in found]
        described.sort(key=lambda pair: RANK.index(pair[1].kind))
        return [(handle, info.at(index)) for index, (handle, info) in enumerate(described)]

    def _make_messenger_info(self, arena: Arena) -> Handle:
        return arena.new(
            "VkDebugUtilsMessengerCreateInfoEXT",
            messageSeverity=vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT
            | vk.VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT,
            messageType=vk.VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT
            | vk.VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT
            | vk.VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
            pfnUserCallback=self._callback,
        )

    def _add_messenger(self, info: Handle) -> Handle:
        create = vk.load_extension(self.handle, "vkCreateDebugUtilsMessengerEXT")
        messenger = allocate_out("VkDebugUtilsMessengerEXT")
        create(self.handle, info, vk.ffi.NULL, messenger)
        return messenger[0]


def choose_device(
    devices: Sequence[tuple[Handle, DeviceInfo]], wanted: str | int | None
) -> tuple[Handle, DeviceInfo]:
    """Select a device by index, UUID prefix or part of its name; None selects the best device."""
    if not devices:
        raise explain_missing_driver()
    if wanted is None:
        return devices[0]
    text = str(wanted).strip().lower()
    if text.isdecimal() and len(text) <= INDEX_DIGITS:
        # A short number is an index only: "15" must match neither "LLVM 15" nor a UUID.
        matches = list(devices[int(text) : int(text) + 1])
    else:
        by_uuid = [pair for pair in devices if _uuid_begins_with(pair[1].uuid, text)]
        matches = by_uuid or [pair for pair in devices if text in pair[1].name.lower()]
    if matches:
        return matches[0]
    listed = "; ".join(f"{info.index}: {info.name} ({info.uuid})" for _, info in devices)
    raise DeviceNotFoundError(
        f"no device matches {wanted!r} as index, UUID prefix or part of a name; found {listed}"
    )


def _uuid_begins_with(uuid: str, text: str) -> bool:
    return uuid.startswith(text) or uuid.replace("-", "").startswith(text)


def find_device(wanted: str | int | None) -> DeviceInfo:
    """Describe the device that `choose_device` selects, without opening it."""
    instance = Instance()
    try:
        return choose_device(instance.devices(), wanted)[1]
    finally:
        instance.close()


def find_devices() -> list[DeviceInfo]:
    """List every Vulkan device of this machine, best first.

    Raises `NoDeviceError` without a driver.
    """
    if _shared.validation is None:
        instance = Instance()
        try:
            return [info for _, info in instance.devices()]
        finally:
            instance.close()
    if _shared.instance is None:
        _shared.instance = Instance(validation=_shared.validation)
    return [info for _, info in _shared.instance.devices()]


class _SharedInstance(threading.local):
    """The instance that `find_devices` leaves for `open_instance`, of each thread."""

    instance: Instance | None = None
    validation: bool | None = None
    """Whether the instance has the validation layer; None outside of `share_instance`."""


_shared = _SharedInstance()


@contextlib.contextmanager
def share_instance(*, validation: bool) -> Iterator[None]:
    """In its `with`, `find_devices` leaves its instance open for the first `open_instance` of the
    same thread: each instance loads all drivers again, 25 ms where lavapipe is the device."""
    before, _shared.validation = _shared.validation, validation
    try:
        yield
    finally:
        _shared.validation = before
        left, _shared.instance = _shared.instance, None
        if left is not None:
            left.close()


def open_instance(*, validation: bool) -> Instance:
    """Return the shared instance, which the caller owns from then on, or else a new one."""
    shared = _shared.instance
    if shared is None or shared.validation != validation:
        return Instance(validation=validation)
    _shared.instance = None
    return shared


def _create(arena: Arena, messenger: Handle, *, validation: bool) -> Handle:
    layers = [VALIDATION_LAYER] if validation else []
    extensions = ["VK_EXT_debug_utils"] if validation else []
    if validation and VALIDATION_LAYER not in list_layers():
        from gpu_executor.common.system_packages import describe_installation

        raise NoDeviceError(
            f"GPU_VALIDATION is set, but the loader has no layer {VALIDATION_LAYER}. To install "
            f"it: {describe_installation('validation layer')}"
        )
    application = arena.new(
        "VkApplicationInfo",
        pApplicationName=arena.text("gpu-executor"),
        pEngineName=arena.text(f"gpu-executor {__version__}"),
        apiVersion=API_VERSION,
    )
    instance = allocate_out("VkInstance")
    for portability in (True, False) if read_loader_version() >= PORTABILITY_SINCE else (False,):
        enabled = [*extensions, PORTABILITY_ENUMERATION] if portability else extensions
        info = arena.new(
            "VkInstanceCreateInfo",
            pNext=messenger,
            flags=vk.VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR if portability else 0,
            pApplicationInfo=application,
            enabledLayerCount=len(layers),
            ppEnabledLayerNames=arena.texts(layers),
            enabledExtensionCount=len(enabled),
            ppEnabledExtensionNames=arena.texts(enabled),
        )
        try:
            vk.vkCreateInstance(info, vk.ffi.NULL, instance)
            break
        except VulkanError as error:
            if not portability or error.result != vk.VK_ERROR_EXTENSION_NOT_PRESENT:
                raise explain_missing_driver(error) from error
    return instance[0]


def read_loader_version() -> tuple[int, int, int]:
    """The version of Vulkan that the loader implements."""
    version = allocate_out("uint32_t")
    try:
        vk.vkEnumerateInstanceVersion(version)
    except AttributeError:  # a loader of Vulkan 1.0 lacks the function
        return 1, 0, 0
    return unpack_version(version[0])


def explain_missing_driver(reason: VulkanError | None = None) -> NoDeviceError:
    """The error of a machine whose loader finds no driver: it names what to install."""
    from gpu_executor.common.system_packages import describe_installation

    why = "" if reason is None else f" ({reason})"
    return NoDeviceError(
        "the Vulkan loader found no driver, so there is no device. To install one: "
        f"{describe_installation('driver')}{why}"
    )


def list_layers() -> list[str]:
    """List the layers that the loader offers."""
    with loader_lock:
        found = enumerate_with(vk.vkEnumerateInstanceLayerProperties, "VkLayerProperties")
    return [vk.ffi.string(layer.layerName).decode() for layer in found]


def _make_message_callback(messages: list[str]) -> Any:
    """Make the C callback of the messenger.

    The instance keeps it alive as long as the messenger.
    """

    def receive(_severity: int, _kind: int, data: Handle, _user: Handle) -> int:
        text = vk.ffi.string(data.pMessage).decode(errors="replace")
        messages.append(text)
        log.warning("%s", text)
        return 0

    return vk.ffi.callback("PFN_vkDebugUtilsMessengerCallbackEXT", receive)
