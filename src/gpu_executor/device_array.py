"""DeviceArray: an array that lives on the card, which kernels take without copying anything."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError

Shape = tuple[int, ...]


class Storage(Protocol):
    """Where a backend keeps the data of such an array."""

    @property
    def device(self) -> Any:
        """The `Card` that it is on."""

    def fetch(self, shape: Shape, dtype: np.dtype[Any], offset: int) -> npt.NDArray[Any]:
        """The data from a byte on as a NumPy array."""


class DeviceArray:
    """Data on the card, with a shape and a dtype. `numpy()` fetches it; it is freed when unused.

    Slices along the first axis and other shapes are views of the same data.
    """

    __slots__ = ("__weakref__", "dtype", "nbytes", "offset", "shape", "size", "storage")

    def __init__(
        self, shape: Shape, dtype: np.dtype[Any], storage: Storage, offset: int = 0
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.storage = storage
        self.offset = offset
        """Bytes into the storage."""
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in the host's memory."""
        return self.storage.fetch(self.shape, self.dtype, self.offset)

    def reshape(self, *shape: int) -> DeviceArray:
        """The same data in another shape; one extent may be -1."""
        known = -math.prod(shape) if -1 in shape else math.prod(shape)
        open_end = -1 in shape
        if shape.count(-1) > 1 or (known == 0 and (self.size or open_end)):
            raise ArgumentShapeError(f"{self.shape} cannot be reshaped to {shape}")
        if known and self.size % known:
            raise ArgumentShapeError(f"{self.shape} cannot be reshaped to {shape}")
        whole = tuple(self.size // known if extent == -1 else extent for extent in shape)
        if math.prod(whole) != self.size:
            raise ArgumentShapeError(f"{self.shape} cannot be reshaped to {shape}")
        return DeviceArray(whole, self.dtype, self.storage, self.offset)

    def __getitem__(self, item: int | slice) -> DeviceArray:
        """Rows of the first axis, in a run."""
        if not self.shape:
            raise IndexError("an array without axes has no rows")
        row = self.nbytes // self.shape[0] if self.shape[0] else 0
        if isinstance(item, slice):
            start, stop, step = item.indices(self.shape[0])
            if step != 1:
                raise ArgumentShapeError(f"arrays on the card are sliced in runs, not by {step}")
            shape = (max(stop - start, 0), *self.shape[1:])
        else:
            start = range(self.shape[0])[item]
            shape = self.shape[1:]
        return DeviceArray(shape, self.dtype, self.storage, self.offset + start * row)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype}>"
