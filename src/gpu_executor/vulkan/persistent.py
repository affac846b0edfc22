"""PersistentVulkanBackend: opens a device once and keeps everything that is expensive to make."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from gpu_executor.calibration import Calibration
from gpu_executor.call import Array
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.dispatch import CopiesToDevice
from gpu_executor.kernel import ElementType, Kernel, Shape, to_native
from gpu_executor.kernels import load
from gpu_executor.plan import Plan, RunOptions
from gpu_executor.settings import Settings
from gpu_executor.vulkan.batch import Job, Stream, run_batch
from gpu_executor.vulkan.graph import Graph
from gpu_executor.vulkan.mapped_arrays import ImportedArray
from gpu_executor.vulkan.profile import Profile
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.stats import Stats

T = TypeVar("T")


class PersistentVulkanBackend:
    """A GPU held open. Use it with `with`, or `close()` it; calls may come from any thread.

    `device` is an index, a UUID prefix or a part of the name, and None means GPU_DEVICE or else the
    best device. `settings` replaces what is read from the environment.
    """

    def __init__(
        self, device: str | int | None = None, *, settings: Settings | None = None
    ) -> None:
        self._session = Session(settings or Settings.from_environment(), device)
        # Also frees everything when the backend is collected or the interpreter ends without
        # close().
        self._finalizer = weakref.finalize(self, self._session.close)

    @property
    def device(self) -> DeviceInfo:
        """The device that is open."""
        return self._session.info

    def run(
        self,
        kernel: Kernel,
        *arrays: Array | DeviceArray,
        device_local: bool | None = None,
        out: Any = None,
        keep: bool = False,
    ) -> Any:
        """Run a kernel on NumPy arrays; returns its output, or a tuple of several.

        `device_local` chooses the data path: True stages through device memory, False lets the
        kernel work on mapped host memory, None leaves it to the settings, the size and the device.
        `out` is the array to write to, or a tuple of them; it may be one of the inputs. With
        `keep=True` the result stays on the card as a `DeviceArray`, which kernels take as well.
        """
        return self._session.run(kernel, arrays, device_local, out, keep=keep)

    def run_field_add(
        self, a: Array, b: Array, device_local: bool | None = None, out: Array | None = None
    ) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus."""
        add = load("bls12_381_fq_add")
        result: Array = self.run(add, a, b, device_local=device_local, out=out)
        return result

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Sequence[Job],
        *,
        out: Sequence[Any] | None = None,
        device_local: bool | None = None,
        pipelined: bool | None = None,
        depth: int | None = None,
    ) -> list[Any]:
        """Run a kernel on many jobs, each a tuple of arrays; their results, in order.

        `pipelined=False` runs one after the other, True overlaps copies and computing in `depth`
        slots (two or more), None leaves it to the plan. The arrays belong to the batch until it
        returns. A job that does not fit is refused, by its index, before anything is submitted.
        """
        options = RunOptions(device_local, pipelined, depth)
        return run_batch(self._session, kernel, jobs, out, options)

    def run_field_add_batch(
        self,
        jobs: Sequence[Job],
        device_local: bool | None = None,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """`run_field_add` for many jobs, one after the other."""
        add = load("bls12_381_fq_add")
        return self.run_batch(add, jobs, out=out, device_local=device_local, pipelined=False)

    def run_field_add_batch_pipelined(
        self,
        jobs: Sequence[Job],
        device_local: bool | None = None,
        out: Sequence[Array] | None = None,
    ) -> list[Array]:
        """`run_field_add` for many jobs, copies and computing overlapped."""
        add = load("bls12_381_fq_add")
        return self.run_batch(add, jobs, out=out, device_local=device_local, pipelined=True)

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Job],
        *,
        out: Iterable[Any] | None = None,
        device_local: bool | None = None,
        depth: int | None = None,
    ) -> Stream:
        """Results of jobs as they come, in order, however many: a bounded number is in flight.

        `out` yields an array (or a tuple of several) for each job, to write its result to; arrays
        may come again when their result was taken. An error in the iterable of jobs ends the
        stream; so does leaving it early. What is in flight then is waited for and dropped, and the
        backend goes on working.
        """
        options = RunOptions(device_local, True, depth)
        self._check_open()
        return Stream(self._session, kernel, jobs, out, options)

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike = np.uint64) -> Array:
        """A NumPy array in memory that the device sees: computing on it copies nothing here."""
        return self._session.empty(shape, dtype)

    def zeros(self, shape: int | Shape, dtype: npt.DTypeLike = np.uint64) -> Array:
        """The same, filled with zeros."""
        array = self.empty(shape, dtype)
        array[...] = 0
        return array

    def asarray(self, array: npt.ArrayLike) -> Array:
        """An array's contents in such memory; the array itself where it lies there already."""
        source = np.asarray(array)
        self._check_open()
        if self._session.mapped.any and self._session.mapped.find(source) is not None:
            return source
        copy = self.empty(source.shape, to_native(source.dtype))
        copy[...] = source
        return copy

    @overload
    def to_device(self, array: CopiesToDevice[T]) -> T: ...

    @overload
    def to_device(self, array: npt.ArrayLike) -> DeviceArray: ...

    def to_device(self, array: Any) -> Any:
        """A copy of an array on the card, for kernels to use without the bus between them.

        A `FieldArray` stays one, in the form that its field computes in.
        """
        self._check_open()
        if isinstance(array, CopiesToDevice):
            return array.copy_to_device(self._session.device_memory)
        return self._session.device_memory.put(np.asarray(array))

    def graph(self, *inputs: Any) -> Graph:
        """Record what is done to card arrays in its `with`, to be run again with other inputs."""
        self._check_open()
        return Graph(self._session.device_memory, inputs)

    def import_array(self, array: Array) -> ImportedArray:
        """Let the device use an array's own memory; close the import, or use it with `with`.

        Costs about as much as a copy, so it pays for an array that is used several times. Where the
        device cannot import (VK_EXT_external_memory_host) this raises `DeviceLacksError`.
        """
        self._check_open()
        return ImportedArray(self._session.resources.device, self._session.mapped, array)

    def explain(
        self, kernel: Kernel, *arrays: Array | int, device_local: bool | None = None
    ) -> Plan:
        """The plan that `run` would follow for these arrays, or n elements; it prints why."""
        given: list[Any] = list(arrays)
        if len(given) == 1 and isinstance(given[0], int):
            given = _make_placeholders(kernel, given[0])
        return self._session.explain(kernel, given, device_local)

    @property
    def calibration(self) -> Calibration | None:
        """What the device was measured to do; None where plans go by fixed thresholds.

        Where the settings name a cache folder, the first batch or large call measures a new device,
        once, and the figures are kept there for later processes.
        """
        return self._session.call_preparer.calibration

    def calibrate(self) -> Calibration:
        """Measure the device again, in about half a second, and plan by the figures from now on."""
        self._check_open()
        return self._session.calibrate()

    def profile(self) -> Profile:
        """Watch every piece of every call until its `with` ends: `stages()`, `save_trace(path)`."""
        self._check_open()
        return self._session.start_profile()

    def trim(self) -> int:
        """Free memory that no running call needs; returns the bytes given back to the device."""
        self._check_open()
        return self._session.trim()

    def stats(self) -> Stats:
        """Calls, caches, memory and where the time went."""
        if self._session.forked:
            self._check_open()
        return self._session.stats()

    def validation_messages(self) -> list[str]:
        """What the validation layer has said, where the backend was opened with it."""
        return list(self._session.instance.messages)

    def close(self) -> None:
        """Wait for running calls, save the pipeline cache, free everything. Twice is fine."""
        self._finalizer()

    def __enter__(self) -> PersistentVulkanBackend:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        return f"<PersistentVulkanBackend on {self.device.name}, {state}>"

    def _check_open(self) -> None:
        self._session.check_open()


def _make_placeholders(kernel: Kernel, count: int) -> list[Array]:
    """Arrays of that many elements for a kernel's inputs, without memory of their own."""
    types = kernel.types or (ElementType(np.dtype(np.uint32)),) * kernel.inputs
    return [
        np.broadcast_to(np.zeros((), type_.dtype), (count, *type_.shape))
        for type_ in types[: kernel.inputs]
    ]
