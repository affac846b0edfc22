"""The binding to the Vulkan loader: entry points, constants and structures.

`vk` holds every entry point and constant under its Vulkan name. A call that returns a negative
VkResult raises an exception. Created and destroyed objects are counted, so that tests can find
leaks. The loader is opened at the first use; importing this module needs no Vulkan.

`Arena` allocates C structures and keeps them, and everything they point to, alive as long as
itself.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpu_executor.common.fork import register_at_fork, skip_driver_cleanup_at_exit
from gpu_executor.errors import (
    DeviceLostError,
    LoaderNotFoundError,
    OutOfMemoryError,
    VulkanError,
)

Handle = Any
"""A cffi pointer: a Vulkan object, or a structure in C memory."""

WHOLE_SIZE = (1 << 64) - 1
"""VK_WHOLE_SIZE. The `vulkan` package defines it as -1, which cffi refuses for a uint64_t."""

_live: Counter[str] = Counter()
_live_lock = threading.RLock()  # reentrant: the garbage collector may close a backend anywhere


def count_live_objects() -> dict[str, int]:
    """Count the objects of each kind that `vk` created in this process and has not destroyed."""
    with _live_lock:
        return {kind: count for kind, count in sorted(_live.items()) if count}


loader_lock = threading.RLock()
"""Held while instances and devices are enumerated, created and destroyed. Vulkan allows these calls
from several threads at once, but the validation layer (1.3.239) was seen to crash on it. A child
forked during such a call was seen to wait for the loader's locks for ever."""


def _before_fork() -> None:
    """Wait until no thread is inside the loader."""
    loader_lock.acquire()
    _live_lock.acquire()


def _after_fork() -> None:
    _live_lock.release()
    loader_lock.release()


def _after_fork_in_child() -> None:
    if _live["Instance"]:  # then the parent's drivers are loaded, with threads of the parent
        skip_driver_cleanup_at_exit()
    _live.clear()  # these objects belong to the parent process
    _after_fork()


register_at_fork(
    before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child
)


class _Vulkan:
    """Entry points, constants and cffi's `ffi`: looked up once, then plain attributes."""

    def __getattr__(self, name: str) -> Any:
        if name == "ffi":
            value = load_ffi()
        elif name.startswith("VK_"):
            value = _load_constant(name)
        else:
            value = _load_entry_point(name)
        setattr(self, name, value)
        return value

    def load_extension(self, instance: Handle, name: str) -> Any:
        """Return an entry point that the loader does not export, from vkGetInstanceProcAddr."""
        pointer = self.vkGetInstanceProcAddr(instance, name.encode())
        if pointer == self.ffi.NULL:
            raise _make_error(name, self.VK_ERROR_EXTENSION_NOT_PRESENT)
        return _check_results(name, self.ffi.cast(f"PFN_{name}", pointer))

    def load_device_extension(self, device: Handle, name: str) -> Any:
        """Return an entry point of an enabled device extension, from vkGetDeviceProcAddr."""
        pointer = self.vkGetDeviceProcAddr(device, name.encode())
        if pointer == self.ffi.NULL:
            raise _make_error(name, self.VK_ERROR_EXTENSION_NOT_PRESENT)
        return _check_results(name, self.ffi.cast(f"PFN_{name}", pointer))


vk = _Vulkan()


class Arena:
    """Owns C structures: cffi does not keep alive what a pointer inside a structure points to."""

    def __init__(self) -> None:
        self._owned: list[Any] = []

    def new(self, kind: str, **fields: Any) -> Handle:
        """Allocate a zeroed structure, set its sType and `fields`, and return a pointer to it."""
        structure = vk.ffi.new(f"{kind} *")
        tag = _find_structure_type(kind)
        if tag is not None:
            structure.sType = tag
        for field, value in fields.items():
            setattr(structure, field, value)
        self._owned.append((structure, tuple(fields.values())))
        return structure

    def array(self, kind: str, items: Any) -> Handle:
        """Allocate an array of `kind` from a sequence of values, or of a given length."""
        values = vk.ffi.new(f"{kind}[]", items)
        self._owned.append((values, items))
        return values

    def text(self, value: str) -> Handle:
        return self.array("char", value.encode())

    def texts(self, values: list[str]) -> Handle:
        return self.array("char *", [self.text(value) for value in values])


def allocate_out(kind: str) -> Handle:
    """Allocate one value for a Vulkan call to write."""
    return vk.ffi.new(f"{kind} *")


def get_integer(handle: Handle) -> int:
    """Return a handle as an integer, as descriptor updates by a template take it."""
    return int(vk.ffi.cast("uintptr_t", handle))


def enumerate_with(call: Callable[..., Any], kind: str, *arguments: Any) -> list[Handle]:
    """Call a vkEnumerate or vkGet function twice: once for the count, once for the items."""
    count = allocate_out("uint32_t")
    call(*arguments, count, vk.ffi.NULL)
    items = vk.ffi.new(f"{kind}[]", count[0])
    call(*arguments, count, items)
    return [items[i] for i in range(count[0])]


LOADER_NAMES = {
    "linux": ("libvulkan.so.1",),
    "win32": ("vulkan-1.dll",),
    "darwin": ("libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib"),
}
"""The libraries that may be the Vulkan loader, for each value of `sys.platform`, best first.
MoltenVK is a driver that can be used without a loader, but then without layers."""
MACOS_FOLDERS = ("/opt/homebrew/lib", "/usr/local/lib")
"""Where Homebrew and the Vulkan SDK install libraries. The dynamic linker of macOS does not search
the first one, and it ignores DYLD_LIBRARY_PATH in programs that the system protects."""


@functools.cache
def load_ffi() -> Any:
    """The C declarations of the `vulkan` package, without the package itself.

    Its `__init__` defines a wrapper for each function and thousands of constants, which this
    package does not use: importing it takes 20 ms, the declarations alone 3 ms. If the user has
    imported the package, or if its declarations are not where they are expected, the package is
    used.
    """
    found = None if "vulkan" in sys.modules else importlib.util.find_spec("vulkan")
    for folder in () if found is None else found.submodule_search_locations or ():
        spec = importlib.util.spec_from_file_location(
            f"{__package__}.declarations", f"{folder}/_vulkancache.py"
        )
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            try:
                spec.loader.exec_module(module)
            except (OSError, ImportError):
                break
            if hasattr(module, "ffi"):
                return module.ffi
    return _load_package().ffi


def list_loader_paths(system: str, environ: Mapping[str, str]) -> list[str]:
    """The names and paths under which the Vulkan loader is looked for, in this order."""
    names = LOADER_NAMES.get(system, LOADER_NAMES["linux"])
    folders = [""]  # a name alone: the dynamic linker searches its own folders
    if system == "darwin":
        sdk = environ.get("VULKAN_SDK")
        folders += [*([f"{sdk}/lib"] if sdk else []), *MACOS_FOLDERS]
    return [os.path.join(folder, name) for name in names for folder in folders]  # noqa: PTH118


@functools.cache
def load_library() -> Any:
    """The Vulkan loader, by the declarations of `load_ffi`."""
    unusable = []
    for path in list_loader_paths(sys.platform, os.environ):
        try:
            return load_ffi().dlopen(path)
        except OSError as error:
            reason = error
            if os.path.isabs(path) and os.path.exists(path):  # noqa: PTH110, PTH117
                unusable.append(str(error))  # such as a library for another processor
    raise _explain_missing_loader(unusable) from reason


@functools.cache
def _load_package() -> Any:
    try:
        import vulkan
    except OSError as error:
        raise _explain_missing_loader() from error
    return vulkan


def _explain_missing_loader(unusable: Sequence[str] = ()) -> LoaderNotFoundError:
    from gpu_executor.common.system_packages import describe_installation

    *names, last = LOADER_NAMES.get(sys.platform, LOADER_NAMES["linux"])
    found = f"{' or '.join([', '.join(names), last] if names else [last])} was not found"
    if unusable:
        found = f"what was found cannot be loaded ({'; '.join(unusable)})"
    return LoaderNotFoundError(
        f"no Vulkan loader: {found}. To install it: {describe_installation('loader')}"
    )


def _load_constant(name: str) -> Any:
    try:
        return load_ffi().integer_const(name)
    except AttributeError:  # not an enumerator
        return getattr(_load_package(), name)


def _load_entry_point(name: str) -> Any:
    return _check_results(name, getattr(load_library(), name))


def _check_results(name: str, call: Any) -> Any:
    """Wrap `call` to raise on an error and to count objects; unchanged if neither applies."""
    returns_result = vk.ffi.typeof(call).result.cname == "enum VkResult"
    count = _make_counter(name)
    if not returns_result and count is None:
        return call

    def check_result(*arguments: Any) -> Any:  # on the path of every call
        result = call(*arguments)
        if result < 0:
            raise _make_error(name, result)
        return result

    if count is None:
        check_result.__name__ = name
        return check_result

    def checked(*arguments: Any) -> Any:
        result = call(*arguments)
        if returns_result and result < 0:
            raise _make_error(name, result)
        count(arguments)
        return result

    checked.__name__ = name
    return checked


def _make_counter(name: str) -> Callable[[tuple[Any, ...]], None] | None:
    match = re.fullmatch(r"vk(Create|Allocate|Destroy|Free)(\w+)", name)
    if match is None or match[2] in ("CommandBuffers", "DescriptorSets"):
        return None  # destroyed together with their pools
    kind = re.sub(r"^Compute(Pipeline)s$", r"\1", match[2])
    step = 1 if match[1] in ("Create", "Allocate") else -1

    def count(_arguments: tuple[Any, ...]) -> None:
        with _live_lock:
            _live[kind] += step

    return count


def _make_error(call: str, result: int) -> Exception:
    meaning = _list_result_names().get(result, "an unknown VkResult")
    if result == vk.VK_ERROR_DEVICE_LOST:
        return DeviceLostError(call, result, f"{meaning}: the device is gone; reopen the backend")
    if result in (vk.VK_ERROR_OUT_OF_DEVICE_MEMORY, vk.VK_ERROR_OUT_OF_HOST_MEMORY):
        return OutOfMemoryError(f"{call} failed: {meaning}")
    return VulkanError(call, result, meaning)


@functools.cache
def _list_result_names() -> dict[int, str]:
    return dict(vk.ffi.typeof("VkResult").elements)


@functools.cache
def _find_structure_type(kind: str) -> int | None:
    """Return the sType of a structure, e.g. VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO; None without."""
    fields = vk.ffi.typeof(kind).fields
    if not fields or fields[0][0] != "sType":
        return None
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z0-9])", "_", kind.removeprefix("Vk"))
    words = re.sub(r"(?<=[A-Z])(?=[A-Z][a-z])", "_", words)
    tag: int = getattr(vk, f"VK_STRUCTURE_TYPE_{words.upper()}")
    return tag
