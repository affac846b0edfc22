"""`gx.graph`: a sequence of operations on card arrays, recorded once and run many times."""

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

GRAPHS_KEPT = 8
"""Of one function, for as many kinds of arguments; the longest unused is forgotten."""
CardArray = DeviceArray | FieldArray
Results = TypeVar("Results")


@overload
def graph(first: Callable[..., Results], /) -> Callable[..., Results]: ...


@overload
def graph(first: CardArray, /, *inputs: CardArray) -> Graph: ...


def graph(first: Any, /, *inputs: Any) -> Any:
    """Of arrays, a context: what is done in its `with` is recorded, and calling it does that, with
    other arrays in the place of these. Of a function, a decorator.

        with gx.graph(x) as run:
            y = Fr.intt(Fr.ntt(x) * 3)
        run(other)              # y has the result

        @gx.graph
        def tripled(x): return Fr.intt(Fr.ntt(x) * 3)
        y = tripled(x)          # recorded at the first call with such arrays

    Whatever else the recorded steps use, such as numbers, stays as it was when they were recorded.
    """
    if callable(first):
        if inputs:
            raise ArgumentTypeError("gx.graph takes one function, or arrays on the card")
        return functools.update_wrapper(_Recording(first), first)
    return Graph(_device([first, *inputs]), [first, *inputs])


class _Recording:
    """A function of card arrays that is recorded for each kind of them that it meets.

    Each call has results of its own: what the recorded steps leave is copied. Safe from several
    threads, which take turns.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._recorded: LruCache[Hashable, tuple[Graph, Any]] = LruCache()
        self._lock = threading.Lock()

    def __call__(self, *arrays: CardArray) -> Any:
        device = _device(arrays)
        key = (device, *(_kind(array) for array in arrays))
        with self._lock:
            found = self._recorded.use(key)
            if found is None:
                found = self._recorded[key] = self._record(device, arrays)
                self._recorded.evict(GRAPHS_KEPT)
            recorded, results = found
            copies, steps = _copies(device, results)  # before anything runs: they may be no arrays
            recorded(*arrays)
            device.submit(steps)
            return copies

    def _record(self, device: DeviceMemory, arrays: Sequence[CardArray]) -> tuple[Graph, Any]:
        own = [_like(device, array) for array in arrays]
        with Graph(device, own) as recorded:
            results = self._function(*own)
        return recorded, results


def _data(array: Any) -> DeviceArray:
    data = array.data if isinstance(array, FieldArray) else array
    if not isinstance(data, DeviceArray):
        raise ArgumentTypeError(f"a graph has arrays on the card, not a {type(array).__name__}")
    return data


def _device(arrays: Sequence[CardArray]) -> DeviceMemory:
    """Where all of them are."""
    if not arrays:
        raise ArgumentTypeError("a graph has one array on the card at least")
    devices = [_data(array).storage.device for array in arrays]
    if any(device is not devices[0] for device in devices):
        raise ArgumentTypeError("the arrays of a graph are on one card")
    if not isinstance(devices[0], DeviceMemory):
        raise ArgumentTypeError("graphs are recorded by Vulkan backends")
    return devices[0]


def _kind(array: CardArray) -> Hashable:
    data = _data(array)
    field = (array.field, array.form) if isinstance(array, FieldArray) else None
    return data.shape, data.dtype, field


def _like(device: DeviceMemory, array: CardArray) -> CardArray:
    """Room for as much."""
    data = _data(array)
    made = device.empty(data.shape, data.dtype)
    return FieldArray(array.field, made, array.form) if isinstance(array, FieldArray) else made


def _copies(device: DeviceMemory, results: Any) -> tuple[Any, list[ArrayCopy]]:
    """Arrays for copies of the results, which are one array or some in a tuple or a list."""
    if isinstance(results, tuple | list):
        pairs = [_copies(device, each) for each in results]
        return type(results)(copy for copy, _ in pairs), [step for _, own in pairs for step in own]
    copy = _like(device, results)
    return copy, [ArrayCopy(_data(results), _data(copy))]
