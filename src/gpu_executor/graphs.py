"""`gx.graph`: a sequence of operations on device arrays, recorded once and run many times."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar, overload

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayCopy
from gpu_executor.errors import ArgumentTypeError
from gpu_executor.fields import FieldArray
from gpu_executor.lru import LruCache
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.graph import Graph

MAX_RECORDINGS = 8
"""Recordings of one decorated function, for as many kinds of arguments; the cache is LRU."""
AnyDeviceArray = DeviceArray | FieldArray
Results = TypeVar("Results")


@overload
def graph(first: Callable[..., Results], /) -> Callable[..., Results]: ...


@overload
def graph(first: AnyDeviceArray, /, *inputs: AnyDeviceArray) -> Graph: ...


def graph(first: Any, /, *inputs: Any) -> Any:
    """Record operations on device arrays, as a context manager or as a decorator.

    Given arrays, the operations inside the `with` are recorded. Calling the graph runs them, with
    other arrays copied to these inputs first.

        with gx.graph(x) as run:
            y = Fr.intt(Fr.ntt(x) * 3)
        run(other)              # y has the result

    Given a function, it is recorded at its first call with arrays of these shapes and types.

        @gx.graph
        def triple(x): return Fr.intt(Fr.ntt(x) * 3)
        y = triple(x)

    Everything else that the operations use, such as integers, keeps the value that it had when
    they were recorded.
    """
    if callable(first):
        if inputs:
            raise ArgumentTypeError("gx.graph takes one function, or device arrays, not both")
        return functools.update_wrapper(_RecordedFunction(first), first)
    return Graph(_get_device([first, *inputs]), [first, *inputs])


class _RecordedFunction:
    """A function of device arrays, recorded for each kind of arguments that it is called with.

    Each call returns new arrays: the results of the recorded operations are copied. Safe from
    several threads, which run one at a time.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._recordings: LruCache[Hashable, tuple[Graph, Any]] = LruCache()
        self._lock = threading.Lock()

    def __call__(self, *arrays: AnyDeviceArray) -> Any:
        device = _get_device(arrays)
        key = (device, *(_make_key(array) for array in arrays))
        with self._lock:
            found = self._recordings.use(key)
            if found is None:
                found = self._recordings[key] = self._record(device, arrays)
                self._recordings.evict(MAX_RECORDINGS)
            recorded, results = found
            # Before anything runs: this fails if the results are not device arrays.
            copies, steps = _make_copies(device, results)
            recorded(*arrays)
            device.submit(steps)
            return copies

    def _record(self, device: DeviceMemory, arrays: Sequence[AnyDeviceArray]) -> tuple[Graph, Any]:
        inputs = [_make_like(device, array) for array in arrays]
        with Graph(device, inputs) as recorded:
            results = self._function(*inputs)
        return recorded, results


def _get_data(array: Any) -> DeviceArray:
    data = array.data if isinstance(array, FieldArray) else array
    if not isinstance(data, DeviceArray):
        raise ArgumentTypeError(
            f"a graph takes and returns device arrays, not {type(array).__name__}; "
            "gpu.to_device(array) copies an array to the device"
        )
    return data


def _get_device(arrays: Sequence[AnyDeviceArray]) -> DeviceMemory:
    """The device that holds all the arrays."""
    if not arrays:
        raise ArgumentTypeError("a graph needs at least one device array as its input")
    devices = [_get_data(array).storage.device for array in arrays]
    if any(device is not devices[0] for device in devices):
        raise ArgumentTypeError("the inputs of a graph must be on one device")
    if not isinstance(devices[0], DeviceMemory):
        raise ArgumentTypeError("graphs are recorded by Vulkan backends only")
    return devices[0]


def _make_key(array: AnyDeviceArray) -> Hashable:
    data = _get_data(array)
    field = (array.field, array.form) if isinstance(array, FieldArray) else None
    return data.shape, data.dtype, field


def _make_like(device: DeviceMemory, array: AnyDeviceArray) -> AnyDeviceArray:
    """An uninitialized array of the same type and shape."""
    data = _get_data(array)
    made = device.empty(data.shape, data.dtype)
    return FieldArray(array.field, made, array.form) if isinstance(array, FieldArray) else made


def _make_copies(device: DeviceMemory, results: Any) -> tuple[Any, list[ArrayCopy]]:
    """New arrays for the results, one array or nested tuples and lists, and the copies to them."""
    if isinstance(results, tuple | list):
        pairs = [_make_copies(device, each) for each in results]
        copies = type(results)(copy for copy, _ in pairs)
        return copies, [step for _, steps in pairs for step in steps]
    copy = _make_like(device, results)
    return copy, [ArrayCopy(_get_data(results), _get_data(copy))]
