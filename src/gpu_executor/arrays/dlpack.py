"""DLPack: arrays in capsules, by which libraries hand each other memory without a copy.

A capsule holds a C structure that describes the array, and a function, the deleter, which the
library that took the array calls when it is done with it. `make_capsule` makes one; what owns the
memory stays alive until the deleter runs. `take_capsule` takes an array from another library.
The structure has a version since DLPack 1.0; a library that does not ask for that gets the older
one.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from typing import Any, ClassVar

import numpy as np

from gpu_executor.arrays.device_array import (
    PATTERN_ADDRESS,
    DeviceArray,
    ExportRequest,
    Shape,
    compute_strides,
)
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentTypeError, ExportError, GpuError

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Values of DLDeviceType."""
READ_ONLY, IS_COPIED = 1, 2
"""Bits of the flags of a versioned structure."""
VERSION = (1, 0)
"""The latest version that is asked for; one with the same first number can be read."""
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""DLDataTypeCode by the kind of a NumPy dtype."""
KINDS = {code: kind for kind, code in CODES.items()}

_CAPSULE, _USED = b"dltensor", b"used_dltensor"
_CAPSULE_VERSIONED, _USED_VERSIONED = b"dltensor_versioned", b"used_dltensor_versioned"


class _Device(ctypes.Structure):
    _fields_: ClassVar[Any] = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class _Tensor(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class _ManagedVersioned(ctypes.Structure):
    _fields_: ClassVar[Any] = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_python = ctypes.pythonapi


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface; the prototype is not shared with other users of it."""
    return ctypes.PYFUNCTYPE(result, *arguments)((name, _python))


_is_valid = _declare("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_get_pointer = _declare("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_set_name = _declare("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Where the elements of an array are."""

    pointer: int
    """The address of the first element; 0 if there are none."""
    device: tuple[int, int]
    """The DLDeviceType, and the index of the device."""
    shape: Shape
    strides: tuple[int, ...]
    """In elements."""
    dtype: np.dtype[Any]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        wanted = compute_strides(self.shape, 1)
        axes = zip(self.shape, self.strides, wanted, strict=True)
        return 0 in self.shape or all(n == 1 or step == right for n, step, right in axes)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class _Owner:
    """What the NumPy array of a capsule is made from: it holds what owns the memory."""

    __slots__ = ("__array_interface__", "__weakref__", "keep_alive")

    def __init__(self, layout: TensorLayout, keep_alive: object) -> None:
        self.keep_alive = keep_alive
        itemsize = layout.dtype.itemsize
        self.__array_interface__ = {
            "version": 3,
            "shape": layout.shape,
            "strides": tuple(step * itemsize for step in layout.strides),
            "typestr": layout.dtype.str,
            "data": (layout.pointer or PATTERN_ADDRESS, False),
        }


_owners: weakref.WeakSet[_Owner] = weakref.WeakSet()


def count_exports() -> int:
    """How many arrays in memory of devices other libraries hold, or may take from a capsule."""
    return len(_owners)


def make_capsule(
    layout: TensorLayout, keep_alive: object, request: ExportRequest, *, flags: int = 0
) -> object:
    """A capsule of an array in memory of a device, which `keep_alive` owns.

    NumPy makes the capsule, of an array whose elements are never accessed, and the device is put
    into it afterwards. NumPy's deleter is written in C: it may run in any thread, while an
    exception is raised, and while the interpreter ends, where functions in Python may not.
    """
    owner = _Owner(layout, keep_alive)
    capsule = _request_from_numpy(np.asarray(owner), request)
    versioned = bool(_is_valid(id(capsule), _CAPSULE_VERSIONED))
    address = _get_pointer(id(capsule), _CAPSULE_VERSIONED if versioned else _CAPSULE)
    managed: Any = (_ManagedVersioned if versioned else _Managed).from_address(address)
    managed.tensor.device = _Device(*layout.device)
    managed.tensor.data = layout.pointer or None
    if versioned:
        managed.flags |= flags
    _owners.add(owner)
    return capsule


def _request_from_numpy(array: Any, request: ExportRequest) -> object:
    """The capsule of a NumPy array. NumPy before 2.1 takes no version, and makes the older
    structure, which every library reads."""
    try:
        found: object = array.__dlpack__(max_version=request.max_version)
    except TypeError:
        found = array.__dlpack__()
    return found


def check_exportable(dtype: np.dtype[Any]) -> None:
    """Raise `ExportError` if DLPack has no such dtype."""
    if dtype.kind not in CODES or not dtype.isnative:
        raise ExportError(
            f"DLPack has no dtype {dtype}; array.numpy().view(...) reads the same bytes as numbers"
        )


class TakenTensor:
    """An array of another library, which gets it back by `release`, or when this object is gone."""

    __slots__ = ("_address", "_deleter", "_process", "is_read_only", "layout")

    def __init__(self, address: int, *, versioned: bool) -> None:
        kind = _ManagedVersioned if versioned else _Managed
        managed: Any = kind.from_address(address)
        self._address, self._deleter, self._process = address, managed.deleter, os.getpid()
        if versioned and managed.major != VERSION[0]:
            raise ExportError(
                f"the array is of DLPack {managed.major}.{managed.minor}; up to version "
                f"{VERSION[0]} can be read"
            )
        self.is_read_only = versioned and bool(managed.flags & READ_ONLY)
        self.layout = _read_layout(managed.tensor)

    def release(self) -> None:
        """Give the array back; once."""
        deleter, self._deleter = self._deleter, None
        if deleter and os.getpid() == self._process:
            _Deleter(deleter)(self._address)

    def __del__(self) -> None:
        self.release()


def _read_layout(tensor: Any) -> TensorLayout:
    dtype, ndim = tensor.dtype, tensor.ndim
    if dtype.code not in KINDS or dtype.lanes != 1 or dtype.bits % 8:
        raise ExportError(
            f"the array has the dtype of DLPack's code {dtype.code} with {dtype.bits} bits and "
            f"{dtype.lanes} lanes, which NumPy does not have (bfloat16 is code 4); convert it first"
        )
    kind = "?" if KINDS[dtype.code] == "b" else f"{KINDS[dtype.code]}{dtype.bits // 8}"
    shape = tuple(tensor.shape[axis] for axis in range(ndim))
    strides = (
        tuple(tensor.strides[axis] for axis in range(ndim))
        if tensor.strides
        else compute_strides(shape, 1)
    )
    pointer = (tensor.data or 0) + tensor.byte_offset
    device = tensor.device.type, tensor.device.id
    return TensorLayout(pointer, device, shape, strides, np.dtype(kind))


def take_capsule(capsule: object) -> TakenTensor:
    """Take the array of a capsule, which nobody else can take then."""
    for name, used in ((_CAPSULE, _USED), (_CAPSULE_VERSIONED, _USED_VERSIONED)):
        if _is_valid(id(capsule), name):
            address = _get_pointer(id(capsule), name)
            _set_name(capsule, used)
            return TakenTensor(address, versioned=name is _CAPSULE_VERSIONED)
    raise ExportError("__dlpack__ has returned no DLPack capsule, or one that was taken already")


def request_capsule(tensor: Any, stream: int | None) -> object:
    """Call the `__dlpack__` of another library's array; that of an older library knows no
    versions."""
    options: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        found: object = tensor.__dlpack__(max_version=VERSION, **options)
    except TypeError:
        found = tensor.__dlpack__(**options)
    return found


def export_host_array(array: Any, request: ExportRequest) -> object:
    """The capsule of a NumPy array."""
    if request.stream is not None:
        raise ExportError(f"stream={request.stream!r}: memory of the host has no streams")
    return _request_from_numpy(array.copy() if request.copy else array, request)


def view_host_tensor(tensor: Any) -> np.ndarray[Any, np.dtype[Any]] | None:
    """An array of any library in host memory, as a NumPy array over the same memory; None for one
    in the memory of a device."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if isinstance(tensor, DeviceArray):
        raise ArgumentTypeError(
            "from_dlpack: the array is a device array; gpu.to_device(array) copies it"
        )
    if not (hasattr(tensor, "__dlpack__") and hasattr(tensor, "__dlpack_device__")):
        raise ArgumentTypeError(
            f"from_dlpack: a {type(tensor).__name__} has no __dlpack__; gpu.to_device takes arrays "
            "of NumPy and what NumPy makes one of"
        )
    if tensor.__dlpack_device__()[0] not in (CPU, CUDA_HOST):
        return None
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, GpuError):
            raise
        raise ExportError(f"from_dlpack: the array cannot be read: {error}") from error
