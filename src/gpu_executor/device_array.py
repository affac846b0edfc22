"""DeviceArray: an array that lives on the card, which kernels take without copying anything."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]


class Storage(Protocol):
    """Where a backend keeps the data of such an array."""

    def fetch(self, shape: Shape, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """The data as a NumPy array."""


class DeviceArray:
    """Data on the card, with a shape and a dtype. `numpy()` fetches it; it is freed when unused."""

    __slots__ = ("__weakref__", "dtype", "shape", "storage")

    def __init__(self, shape: Shape, dtype: np.dtype[Any], storage: Storage) -> None:
        self.shape = shape
        self.dtype = dtype
        self.storage = storage

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def numpy(self) -> npt.NDArray[Any]:
        """A copy in the host's memory."""
        return self.storage.fetch(self.shape, self.dtype)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<DeviceArray {self.shape} {self.dtype}>"
