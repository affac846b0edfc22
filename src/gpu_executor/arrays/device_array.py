"""`DeviceArray`: an array in device memory, which kernels use without a copy."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import operator
from collections.abc import Iterator
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.array_operators import ArrayOperators
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.errors import ArgumentShapeError

Shape = tuple[int, ...]
Strides = tuple[int, ...]
PATTERN_ADDRESS = 1 << 46
"""The address of a storage in `DeviceArray.make_pattern`."""


class Storage(Protocol):
    """The memory of a device array, owned by a backend."""

    @property
    def device(self) -> Any:
        """The `ArrayDevice` that the memory belongs to."""


class UploadingBackend(Protocol):
    """A backend that has device arrays."""

    def to_device(self, array: Any) -> Any:
        """Copy an array to the device."""


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The arguments of `__dlpack__`."""

    stream: Any = None
    max_version: tuple[int, int] | None = None
    dl_device: tuple[int, int] | None = None
    copy: bool | None = None


class DeviceArray(ArrayOperators):
    """Data in device memory with a shape and a dtype. `numpy()` fetches a copy of it.

    Indexing with integers, slices of any step, `...` and None gives a view of the same memory, as
    in NumPy, and so does reshaping where the strides allow it. The memory is freed when the last
    view is gone. `to_device` and calls make device arrays.
    """

    __slots__ = ("__weakref__", "_strides", "dtype", "nbytes", "offset", "shape", "size", "storage")

    def __init__(
        self,
        shape: Shape,
        dtype: np.dtype[Any],
        storage: Storage,
        offset: int = 0,
        strides: Strides | None = None,
    ) -> None:
        """Make an array of a part of a storage.

        Args:
            shape (tuple): The lengths of its axes.
            dtype (dtype): The type of its elements.
            storage (Storage): The device memory.
            offset (int): Of the first element, in bytes from the beginning of the storage.
            strides (tuple | None): In bytes; None stands for those of a C-contiguous array.
        """
        self.shape = shape
        self.dtype = dtype
        self.storage = storage
        self.offset = offset
        """Of the first element, in bytes from the beginning of the storage."""
        self._strides = strides
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def strides(self) -> Strides:
        """The bytes between neighbours along each axis."""
        if self._strides is None:
            return compute_strides(self.shape, self.dtype.itemsize)
        return self._strides

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        return self._strides is None

    @property
    def T(self) -> DeviceArray:  # noqa: N802 - NumPy's name
        """A view with the axes in reverse order."""
        return self.transpose()

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in host memory; waits for the operations that write the array."""
        fetched: npt.NDArray[Any] = self.storage.device.fetch(self)
        return fetched

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError("a device array is copied to the host; copy=False is not possible")
        fetched = self.numpy()
        return fetched if dtype is None else fetched.astype(dtype, copy=False)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The array for another library, by DLPack: `torch.from_dlpack(array)` or
        `cupy.from_dlpack(array)` shares its memory. On Vulkan devices, `empty_device` with
        `export=True` makes such arrays.

        Args:
            stream (int | None): The library's CUDA stream, which waits for the operations that
                write the array; None: the legacy default stream; -1: none waits.
            max_version (tuple | None): The version of DLPack that the library reads.
            dl_device (tuple | None): The DLPack device that the library wants; that of the CPU gets
                a copy.
            copy (bool | None): True asks for a copy, False allows none.

        Raises:
            ExportError: The array cannot be shared; says why.
        """
        request = ExportRequest(stream, max_version, dl_device, copy)
        made: object = self.storage.device.export_dlpack(self, request)
        return made

    def __dlpack_device__(self) -> tuple[int, int]:
        """The DLPack device of the array, for other libraries: its type and its index."""
        found: tuple[int, int] = self.storage.device.find_dlpack_device(self)
        return found

    def tolist(self) -> Any:
        """The elements as nested lists of Python scalars."""
        return self.numpy().tolist()

    def item(self, *index: int | Shape) -> Any:
        """One element as a Python scalar; waits for the operations that write it.

        Args:
            *index (int | tuple): Its place, as NumPy's `item` takes it; none for an array of one
                element.
        """
        if not index:
            return self.numpy().item()
        at = cast("Shape", index[0] if len(index) == 1 and np.iterable(index[0]) else index)
        if len(at) == 1 and self.ndim != 1:
            place = operator.index(at[0])
            if not -self.size <= place < self.size:
                raise IndexError(f"item: {place} is no place in {self.size} elements")
            at = tuple(map(int, np.unravel_index(place % self.size, self.shape)))
        return self[at].numpy().item()

    def copy(self) -> DeviceArray:
        """A contiguous copy on the same device."""
        made: DeviceArray = self.storage.device.copy(self)
        return made

    def copy_to(self, device: UploadingBackend) -> Any:
        """A copy on another device.

        Args:
            device (Backend): The backend or executor of that device.
        """
        return device.to_device(self)

    # --- views ---

    def reshape(self, *shape: int | Shape) -> DeviceArray:
        """The elements in another shape: a view where the strides allow it, else a copy on the
        device.

        Args:
            *shape (int | tuple): The lengths, or one tuple of them; one length may be -1.
        """
        wanted = cast("Shape", shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape)
        lengths = self._infer_lengths(tuple(map(operator.index, wanted)))
        if self._strides is None:
            return DeviceArray(lengths, self.dtype, self.storage, self.offset)
        strides = find_reshaped_strides(self.shape, self.strides, lengths)
        if strides is None:
            return self.copy().reshape(lengths)
        return DeviceArray(lengths, self.dtype, self.storage, self.offset, strides)

    def ravel(self) -> DeviceArray:
        """The elements along one axis: a view where the strides allow it, else a copy."""
        return self.reshape(-1)

    def transpose(self, *axes: int | Shape) -> DeviceArray:
        """A view with the axes in another order.

        Args:
            *axes (int | tuple): The order, or one tuple of it; None: reversed.
        """
        return self._make_view(self.make_pattern().transpose(*axes))

    def __getitem__(self, item: Any) -> DeviceArray:
        """A view, by NumPy's rules for integers, slices, `...` and None."""
        items = tuple(map(_parse_index, item if isinstance(item, tuple) else (item,)))
        pattern = self.make_pattern()
        # With `...` the result is an array even for a single element.
        return self._make_view(pattern[items if Ellipsis in items else (*items, ...)])

    def __setitem__(self, item: Any, value: Any) -> None:
        """Copy elements to a view, by NumPy's rules; a device array must have the same dtype."""
        self.storage.device.assign(self[item], value)

    def broadcast_to(self, shape: Shape) -> DeviceArray:
        """A view whose axes repeat elements where NumPy's rules say so.

        Args:
            shape (tuple): The shape of the view.

        Raises:
            ArgumentShapeError: NumPy's rules do not allow it.
        """
        try:
            return self._make_view(np.broadcast_to(self.make_pattern(), shape))
        except ValueError:
            raise ArgumentShapeError(
                f"a device array of shape {self.shape} cannot be broadcast to {shape}"
            ) from None

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a device array without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[DeviceArray]:
        if not self.shape:
            raise TypeError("iteration over a device array without axes")
        return (self[index] for index in range(self.shape[0]))

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __copy__(self) -> DeviceArray:
        return self.copy()

    def __deepcopy__(self, _memo: object) -> DeviceArray:
        return self.copy()

    def __reduce__(self) -> Any:
        """Pickle the elements: they come back as a NumPy array."""
        return np.array, (self.numpy(),)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype}>"

    def make_pattern(self) -> npt.NDArray[Any]:
        """A NumPy array with this array's shape, strides and offset, and without memory.

        NumPy computes views and overlaps with it; its elements must not be accessed.
        """
        return np.asarray(_Pattern(self))

    def _make_view(self, pattern: npt.NDArray[Any]) -> DeviceArray:
        strides = None if pattern.flags.c_contiguous else pattern.strides
        start: int = pattern.__array_interface__["data"][0]
        offset = start - PATTERN_ADDRESS if pattern.size else self.offset
        return DeviceArray(pattern.shape, self.dtype, self.storage, offset, strides)

    def _infer_lengths(self, wanted: Shape) -> Shape:
        """The lengths of the axes, with the one that is -1 computed from the others."""
        infers = -1 in wanted
        known = -math.prod(wanted) if infers else math.prod(wanted)
        fits = (self.size % known == 0 if known > 0 else False) if infers else known == self.size
        if not fits or wanted.count(-1) > 1 or min(wanted, default=0) < -1:
            raise ArgumentShapeError(
                f"a device array of shape {self.shape} cannot be reshaped to {wanted}"
            )
        return tuple(self.size // known if length == -1 else length for length in wanted)


@functools.lru_cache(maxsize=1024)
def compute_strides(shape: Shape, itemsize: int) -> Strides:
    """The strides of a C-contiguous array, in bytes."""
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def find_reshaped_strides(shape: Shape, strides: Strides, wanted: Shape) -> Strides | None:
    """The strides of a view with another shape of as many elements; None if there is no such view.

    Both shapes are cut into runs of axes with equally many elements. The axes of a run in `shape`
    must be as one axis, which the axes of the run in `wanted` divide.
    """
    if 0 in wanted:
        return tuple(0 for _ in wanted)
    old = [(length, step) for length, step in zip(shape, strides, strict=True) if length != 1]
    found: list[int] = []
    at = 0
    for end in range(1, len(wanted) + 1):
        run = wanted[len(found) : end]
        elements = math.prod(run)
        count, stop = 1, at
        while count < elements and stop < len(old):
            count *= old[stop][0]
            stop += 1
        if count != elements:
            continue  # the run goes on
        axes = old[at:stop]
        if any(one[1] != other[0] * other[1] for one, other in itertools.pairwise(axes)):
            return None
        step = axes[-1][1] if axes else 0
        found += [step * math.prod(run[axis + 1 :]) for axis in range(len(run))]
        at = stop
    return tuple(found)


class _Pattern:
    """What NumPy makes the array of `make_pattern` from."""

    __slots__ = ("__array_interface__",)

    def __init__(self, array: DeviceArray) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "strides": array.strides,
            "typestr": array.dtype.str,
            "data": (PATTERN_ADDRESS + array.offset, False),
        }


def _parse_index(item: Any) -> Any:
    """An index that gives a view; raises for any other."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if not isinstance(item, bool | np.bool_):  # NumPy takes a bool for a mask
        with contextlib.suppress(TypeError):
            return operator.index(item)
    raise ArgumentShapeError(
        "a device array is indexed by integers, slices, ... and None, not by "
        f"{type(item).__name__}; numpy() copies it to the host"
    )
