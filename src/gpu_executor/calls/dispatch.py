"""`Dispatch`, a kernel on device arrays, and `ArrayDevice`, the device that runs dispatches.

The algorithms in `ops/` are written with these two. They make device arrays and submit dispatches
on them. Nothing waits until a result is fetched. A device that runs no dispatches has its own way
to compute a whole operation (`ArrayDevice.run_operation`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, ExportRequest, Shape
from gpu_executor.arrays.overlaps import is_same_view, may_overlap, overlaps_itself
from gpu_executor.calls.arguments import as_numbers, convert_assigned
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.kernel import Kernel

T = TypeVar("T")
Copied_co = TypeVar("Copied_co", covariant=True)


# The two steps are not frozen: a frozen dataclass takes four times as long to make, 1.9 us on a
# Neoverse-N1, and every operation makes some.


@dataclass(slots=True, eq=False)
class Dispatch:
    """One kernel on device arrays: its inputs, then its outputs. It reads no output."""

    kernel: Kernel
    arrays: tuple[DeviceArray, ...]
    count: int
    """The number of elements: the first push constant."""
    push_words: tuple[int, ...] = ()
    """32-bit words appended to the kernel's push constants."""
    groups: int | None = None
    """The number of work-groups; None: as many as the elements need."""
    grid_stride: bool = False
    """Whether the kernel covers all elements with fewer work-groups than they need."""
    work_group: int | None = None
    """Invocations per work-group; None: chosen for the kernel and the number of elements."""
    guarded: tuple[DeviceArray, ...] = ()
    """Arrays whose elements are meaningless if the kernel lowers its status word. Fetching one of
    them, or an array computed from it, raises the error."""
    make_error: Callable[[int], Exception] | None = None
    """Makes that error from the status word."""
    overwrites: bool = False
    """Whether the kernel writes all of its outputs, so that nothing of their contents remains."""
    elementwise: int = 0
    """Not 0 if the kernel works element by element: the number of adjacent elements that depend on
    each other, which is 1 or, of coefficients, the degree of an extension. A device then runs a
    dispatch on arrays larger than a binding in parts. An array of k times `count` elements has k
    for each one; a shorter array repeats, or is read whole. A status word is an index."""

    @property
    def is_empty(self) -> bool:
        """Whether no work-group would run."""
        if self.groups is not None:
            return self.groups == 0
        return not self.count and self.kernel.grid is None


@dataclass(slots=True, eq=False)
class ArrayCopy:
    """A copy of one device array to another of equal shape and dtype, both with any strides.

    The arrays must not overlap, unless they are the same view.
    """

    source: DeviceArray
    target: DeviceArray


Step = Dispatch | ArrayCopy
"""What a device can be asked to do."""


@runtime_checkable
class CopiesToDevice(Protocol[Copied_co]):
    """An array type other than NumPy's that can be copied to a device."""

    def copy_to_device(self, device: ArrayDevice) -> Copied_co:
        """A copy on the device."""


class DeviceGraph(Protocol):
    """Steps that a device has recorded."""

    def replay(self) -> None:
        """Run the steps in order, after everything submitted before; returns at once."""

    def __len__(self) -> int:
        """The number of steps."""


class Algorithms(Protocol):
    """The two algorithms of an operation, which take the same arguments."""

    @property
    def host_algorithm(self) -> Callable[..., Any]:
        """Computes with NumPy arrays. It changes none of its arguments."""

    @property
    def step_algorithm(self) -> Callable[..., Any]:
        """Computes with device arrays: it submits steps to their device."""


class ArrayDevice(Protocol):
    """A device that holds arrays and computes with them: it executes steps, or whole operations."""

    @property
    def backend(self) -> str:
        """The name of the backend that the device belongs to, for messages."""

    @property
    def info(self) -> DeviceInfo:
        """The device's name, kind and limits."""

    @property
    def f64_limbs(self) -> bool:
        """Whether products of large primes use f64 limbs, because they are faster here."""

    @property
    def bytes_per_product(self) -> float:
        """The bytes that kernels move in the time of a 255-bit product on integer limbs; 0 if it is
        not known."""

    @property
    def free_memory(self) -> int:
        """Bytes that new arrays may take, as far as this process knows."""

    @property
    def closed(self) -> bool:
        """Whether the device is closed, and the elements of every array are gone."""

    @property
    def is_recording(self) -> bool:
        """Whether this thread records a graph on the device."""

    @property
    def runs_kernels(self) -> bool:
        """Whether `submit` runs dispatches. A device that does not copies arrays in `submit`, and
        computes whole operations; for what is no operation, kernels must not be used on it."""

    @property
    def computes_float64(self) -> bool:
        """Whether the device computes with float64."""

    @property
    def makes_secrets(self) -> bool:
        """Whether the arrays are secret that this thread makes (`secret_arrays`)."""

    def secret_arrays(self, secret: bool = True) -> AbstractContextManager[None]:
        """Arrays that this thread makes inside the `with` are secret: their memory, and staging
        memory of their copies, is overwritten with zeros when they are gone, before anything else
        gets it. With `secret=False` they are not, inside of another such `with`. Nothing that is
        cached may hold secrets. A device that computes in memory of the process overwrites
        nothing."""

    def overwrite_secrets(self) -> None:
        """Overwrite the memory of secret arrays that are gone now, after everything submitted
        before; without this call it happens with a later one."""

    def keep_memory(self, nbytes: int) -> None:
        """Expect calls that need so many bytes at once: keep as much when they end."""

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array."""

    def put(self, array: npt.NDArray[Any], *, borrow: bool = False) -> DeviceArray:
        """A copy of a NumPy array on the device.

        The caller may change the array afterwards. With `borrow` the caller first waits for the
        copy, with `wait_for` or by fetching a result: mapped memory is then not waited for here.
        """

    def put_ahead(self, array: npt.NDArray[Any], *, waits: bool = True) -> DeviceArray:
        """A copy of a NumPy array on the device. Where the host writes to device memory, or the
        device has a queue for copies, the copy does not wait for what was submitted before; this
        returns when the copy is complete. With `waits=False` that queue is not used: nothing is
        gained by waiting for it while the device has little to do."""

    def copy(self, array: DeviceArray) -> DeviceArray:
        """A contiguous copy of an array of this device."""

    def assign(self, target: DeviceArray, value: Any) -> None:
        """Copy a NumPy array, a number or an array of this device to an array of this device, whose
        shape it is broadcast to."""

    def fetch(self, array: DeviceArray, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """A copy of an array of this device in host memory; waits for what writes the array.

        `out`, of the same shape and dtype, is written to and returned.
        """

    def find_dlpack_device(self, array: DeviceArray) -> tuple[int, int]:
        """What `__dlpack_device__` of an array returns. Raises `GpuError` for an array that other
        libraries cannot use."""

    def export_dlpack(self, array: DeviceArray, request: ExportRequest) -> object:
        """What `__dlpack__` of an array returns. Raises `GpuError` for an array that other
        libraries cannot use, and the error of a call that the array depends on."""

    def empty_result(self, shape: Shape, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An uninitialized array of the host, for results that are no secrets: `fetch` writes them
        to parts of it. It is in memory that the device writes to by itself, if there is some."""

    def wait_for(self, array: DeviceArray) -> None:
        """Wait for everything submitted before that uses the array."""

    def check(self, array: DeviceArray) -> None:
        """Wait as `wait_for` does, and raise the error of a call that the array depends on."""

    def synchronize(self) -> None:
        """Wait for everything submitted before; raises the first error among it."""

    def cache(self, key: Hashable, make: Callable[[], T]) -> T:
        """The cached value of the key, such as a table on the device; made if there is none."""

    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None:
        """Begin to compile what dispatches need that will be submitted soon, where that happens in
        other threads; returns at once. The arrays of the dispatches may be those of a device that
        runs nothing."""

    def describe_pipelines(self, dispatches: Sequence[Dispatch]) -> str | None:
        """In which form the pipelines of dispatches are there, in words; None where there is one
        form."""

    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Compile what dispatches need, in the form that runs fastest, and wait for it; returns the
        number of pipelines. `progress` gets how many are done, and that number."""

    def submit(self, steps: Sequence[Step]) -> None:
        """Run steps in order, after everything submitted before; returns at once."""

    def run_operation(
        self, operation: Algorithms, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Compute an operation on arrays of this device by one of its algorithms; the results are
        arrays of this device. A device that executes steps calls the algorithm made of steps."""

    def begin_capture(self) -> None:
        """Record what this thread submits from now on instead of running it."""

    def end_capture(self, *, discard: bool = False, reorders: bool = False) -> DeviceGraph | None:
        """Stop recording; return what was recorded, unless it is to be discarded. With `reorders`,
        independent steps are recorded as neighbours, so that they may overlap."""


def upload(device: ArrayDevice, array: Any) -> Any:
    """Copy an array of any kind to a device: what `to_device` of a backend does. An array of this
    device is returned as it is."""
    if isinstance(array, CopiesToDevice):
        return array.copy_to_device(device)
    if isinstance(array, DeviceArray):
        if array.storage.device is device:
            return array
        array = array.numpy()
    return device.put(as_numbers("to_device", array))


def copy_array(array: DeviceArray) -> DeviceArray:
    """A contiguous copy of a device array on its device."""
    device: ArrayDevice = array.storage.device
    made = device.empty(array.shape, array.dtype)
    device.submit([ArrayCopy(array, made)])
    return made


def assign_array(target: DeviceArray, value: Any) -> None:
    """Copy a NumPy array, a number or a device array to a device array, whose shape it is broadcast
    to."""
    device: ArrayDevice = target.storage.device
    copies = make_assignment(target, value)
    if copies:
        device.submit(copies)


def make_assignment(target: DeviceArray, value: Any) -> list[Step]:
    """The copy that `assign_array` submits; none if the value is the target itself."""
    device: ArrayDevice = target.storage.device
    if overlaps_itself(target.make_pattern()):
        raise ArgumentValueError(
            "assignment: the array that is written to repeats elements, as broadcast_to makes "
            "them; copy() makes one that does not"
        )
    if not isinstance(value, DeviceArray):
        source = device.put(convert_assigned(value, target.dtype))
    elif value.dtype != target.dtype:
        raise ArgumentTypeError(
            f"assignment: a device array of {value.dtype} does not fit one of {target.dtype}"
        )
    else:
        source = value
    if source.storage is target.storage:
        if source.shape == target.shape and is_same_array(source, target):
            return []
        if may_overlap(source.make_pattern(), target.make_pattern()):
            source = copy_array(source)
    return [ArrayCopy(source.broadcast_to(target.shape), target)]


def is_same_array(a: DeviceArray, b: DeviceArray) -> bool:
    """Whether two device arrays are the same view of the same storage."""
    return a.storage is b.storage and is_same_view(a.make_pattern(), b.make_pattern())
