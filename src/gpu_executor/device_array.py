"""`DeviceArray`: an array in device memory, which kernels use without a copy."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError

Shape = tuple[int, ...]


class Storage(Protocol):
    """The memory of a device array, owned by a backend."""

    @property
    def device(self) -> Any:
        """The `ArrayDevice` that the memory belongs to."""

    def fetch(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> npt.NDArray[Any]:
        """A copy of the data from byte `offset` on, as a NumPy array."""


class DeviceArray:
    """Data in device memory with a shape and a dtype. `numpy()` fetches a copy of it.

    Slices along the first axis and reshaped arrays are views of the same memory. The memory is
    freed when the last of them is gone.
    """

    __slots__ = ("__weakref__", "dtype", "nbytes", "offset", "shape", "size", "storage")

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], storage: Storage, offset: int = 0
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.storage = storage
        self.offset = offset
        """In bytes, from the beginning of the storage."""
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in host memory; waits for the operations that write the array."""
        return self.storage.fetch(self.shape, self.dtype, self.offset)

    def reshape(self, *shape: int) -> DeviceArray:
        """The same data in another shape; one length may be -1."""
        infers = -1 in shape
        known = -math.prod(shape) if infers else math.prod(shape)
        if (
            shape.count(-1) > 1
            or (known == 0 and (self.size or infers))
            or (known and self.size % known)
        ):
            raise ArgumentShapeError(
                f"a device array of shape {self.shape} cannot be reshaped to {shape}"
            )
        lengths = tuple(self.size // known if length == -1 else length for length in shape)
        if math.prod(lengths) != self.size:
            raise ArgumentShapeError(
                f"a device array of shape {self.shape} cannot be reshaped to {shape}"
            )
        return DeviceArray(lengths, self.dtype, self.storage, self.offset)

    def __getitem__(self, item: int | slice) -> DeviceArray:
        """One row of the first axis, or consecutive rows."""
        if not self.shape:
            raise IndexError("a device array without axes has no rows to index")
        row = self.nbytes // self.shape[0] if self.shape[0] else 0
        if isinstance(item, slice):
            start, stop, step = item.indices(self.shape[0])
            if step != 1:
                raise ArgumentShapeError(f"a slice of a device array has step 1, not {step}")
            shape = (max(stop - start, 0), *self.shape[1:])
        else:
            start = range(self.shape[0])[item]
            shape = self.shape[1:]
        return DeviceArray(shape, self.dtype, self.storage, self.offset + start * row)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype}>"
