"""`DryDevice`: a device on which algorithms run dry, to learn what memory and which kernels they
need."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, ExportRequest, Shape
from gpu_executor.calls.dispatch import Algorithms, Dispatch, Step
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ExportError
from gpu_executor.plan import round_up_to_class

T = TypeVar("T")


class DryDevice:
    """An `ArrayDevice` that has no memory and runs nothing. It counts the bytes of arrays, and
    remembers the dispatches."""

    backend = "none"
    runs_kernels = computes_float64 = True
    closed = is_recording = makes_secrets = False
    free_memory = 0

    def __init__(
        self, info: DeviceInfo, *, f64_limbs: bool = False, bytes_per_product: float = 0.0
    ) -> None:
        """What algorithms ask a device for."""
        self.info = info
        self._f64_limbs, self._bytes_per_product = f64_limbs, bytes_per_product
        self.device = self  # it is the storage of its arrays, too
        self.nbytes = self.largest = 0
        self.dispatches: list[Dispatch] = []

    @property
    def f64_limbs(self) -> bool:
        return self._f64_limbs

    @property
    def bytes_per_product(self) -> float:
        return self._bytes_per_product

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        made = DeviceArray(shape, dtype, self)
        self.nbytes += round_up_to_class(made.nbytes)
        self.largest = max(self.largest, made.nbytes)
        return made

    def secret_arrays(self, secret: bool = True) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def overwrite_secrets(self) -> None: ...

    def keep_memory(self, nbytes: int) -> None: ...

    def put(self, array: npt.NDArray[Any], *, borrow: bool = False) -> DeviceArray:
        return self.empty(array.shape, array.dtype)

    def put_ahead(self, array: npt.NDArray[Any], *, waits: bool = True) -> DeviceArray:
        return self.put(array)

    def copy(self, array: DeviceArray) -> DeviceArray:
        return self.empty(array.shape, array.dtype)

    def assign(self, target: DeviceArray, value: Any) -> None: ...

    def fetch(self, array: DeviceArray, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        return np.zeros(array.shape, array.dtype)

    def find_dlpack_device(self, array: DeviceArray) -> tuple[int, int]:
        raise ExportError("the array has no elements")

    def export_dlpack(self, array: DeviceArray, request: ExportRequest) -> object:
        raise ExportError("the array has no elements")

    def empty_result(self, shape: Shape, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        return np.empty(shape, dtype)

    def wait_for(self, array: DeviceArray) -> None: ...

    def check(self, array: DeviceArray) -> None: ...

    def synchronize(self) -> None: ...

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        return make()

    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None: ...

    def describe_pipelines(self, dispatches: Sequence[Dispatch]) -> str | None:
        return None

    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        return 0

    def submit(self, steps: Sequence[Step]) -> None:
        self.dispatches += [each for each in steps if isinstance(each, Dispatch)]

    def run_operation(
        self, operation: Algorithms, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        return operation.step_algorithm(*arguments, **options)

    def begin_capture(self) -> None: ...

    def end_capture(self, *, discard: bool = False, reorders: bool = False) -> DryDevice:
        return self  # it is the recording, too

    def replay(self) -> None: ...

    def __len__(self) -> int:
        return 0
