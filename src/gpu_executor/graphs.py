"""`gx.graph`: a sequence of operations on device arrays, recorded once and run many times."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.typed_array import TypedArray
from gpu_executor.calls.arguments import count_nouns, describe
from gpu_executor.calls.dispatch import (
    ArrayCopy,
    ArrayDevice,
    DeviceGraph,
    copy_array,
    is_same_array,
    make_assignment,
)
from gpu_executor.common.lru import LruCache
from gpu_executor.common.value_keys import NoKeyError, ValueKey, is_namedtuple
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError

MAX_RECORDINGS = 8
"""Recordings of one decorated function, for as many kinds of arguments; the cache is LRU."""
AnyDeviceArray = DeviceArray | TypedArray
Results = TypeVar("Results")
MAX_CONSTANT_BYTES = 4096
"""Bytes of a NumPy array that is a constant: every call reads all of them."""


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

    Given a function or a method, it is recorded at its first call with arrays of these shapes and
    types. Arguments that are no device arrays are constants: each value is recorded separately.
    Constants are numbers, strings, dtypes, enums, NumPy arrays of up to 4 KiB, and tuples, lists,
    dicts and frozen dataclasses of these, all compared by their contents, bit by bit. Kernels,
    fields, curves, tables of points, executors and classes are compared by identity, and so is the
    `self` of a method, whose changes are not seen. Anything else is refused.

        @gx.graph
        def triple(x): return Fr.intt(Fr.ntt(x) * 3)
        y = triple(x)

    Everything else that the operations use, such as NumPy arrays, keeps the value that it had when
    they were recorded.

    Args:
        first (DeviceArray | Callable): The first input, or the function to record.
        *inputs (DeviceArray): The other inputs, all of one device.

    Returns:
        A `Graph`, or the function that records and runs the given one.

    Raises:
        ArgumentTypeError: An input is no device array, or a function comes with inputs.
    """
    if callable(first):
        if inputs:
            raise ArgumentTypeError("gx.graph takes one function, or device arrays, not both")
        return functools.update_wrapper(_GraphFunction(first), first)
    return Graph(_find_device([first, *inputs]), [first, *inputs])


class Graph:
    """Operations on device arrays inside its `with` are recorded, not run; a call runs them.

    A call takes one array for each input that the graph was made with, or none. It copies the
    arrays to the inputs and runs the recorded operations. The results are in the arrays that the
    operations returned while they were recorded. A call is submitted and returns at once.
    """

    def __init__(self, device: ArrayDevice, inputs: Sequence[Any]) -> None:
        self._device = device
        for each in inputs:
            _get_data(each)
        self._inputs = list(inputs)
        self._recording: DeviceGraph | None = None

    def __enter__(self) -> Graph:
        if self._recording is not None:
            raise GpuError("the graph is recorded already; make another one to record again")
        self._device.begin_capture()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> None:
        self._recording = self._device.end_capture(discard=kind is not None)

    def __call__(self, *arrays: Any) -> None:
        if self._recording is None:
            raise GpuError("the graph is not recorded yet: leave its `with` block first")
        if arrays and len(arrays) != len(self._inputs):
            raise ArgumentTypeError(
                f"the graph has {count_nouns(len(self._inputs), 'input')} and got "
                f"{count_nouns(len(arrays), 'array')}"
            )
        targets = [_get_data(each) for each in self._inputs]
        sources = [
            self._convert(index, given, self._inputs[index]) for index, given in enumerate(arrays)
        ]
        # All are read before any is written: an argument may be another input of the graph.
        written = {id(target.storage) for target in targets}
        sources = [
            copy_array(source)
            if isinstance(source, DeviceArray)
            and id(source.storage) in written
            and not is_same_array(source, target)
            else source
            for source, target in zip(sources, targets, strict=False)
        ]
        copies = [
            step
            for source, target in zip(sources, targets, strict=False)
            for step in make_assignment(target, source)
        ]
        if copies:
            self._device.submit(copies)
        self._recording.replay()

    def __len__(self) -> int:
        """The number of recorded steps."""
        return 0 if self._recording is None else len(self._recording)

    def _convert(self, index: int, given: Any, target: AnyDeviceArray) -> Any:
        """The words of an argument as its input stores them."""
        if isinstance(target, TypedArray):
            return target.convert_like(given)
        if isinstance(given, TypedArray) or not isinstance(given, np.ndarray | DeviceArray):
            raise ArgumentTypeError(
                f"input {index} of the graph is a device array of {target.dtype}; got "
                f"{type(given).__name__}"
            )
        if given.shape != target.shape or given.dtype != target.dtype:
            raise ArgumentShapeError(
                f"input {index} of the graph is {target.dtype} of shape {target.shape}; got "
                f"{given.dtype} of shape {given.shape}"
            )
        return given


class _GraphFunction:
    """A function of device arrays, recorded for each kind of arguments that it is called with.

    Each call returns new arrays: the results of the recorded operations are copied. Safe from
    several threads, which run one at a time.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._owner: type | None = None
        self._method = functools.update_wrapper(functools.partial(self._call, True), function)
        """The function as a method, whose first argument is `self`."""
        self._recordings: LruCache[Hashable, tuple[Graph, Any, Any]] = LruCache()
        """The graph, its results, and the objects whose ids are in the key and must stay unique."""
        self._lock = threading.Lock()

    def __set_name__(self, owner: type, _name: str) -> None:
        self._owner = owner

    def __get__(self, instance: Any, _owner: type | None = None) -> Any:
        """A method: the instance is a constant that is compared by identity."""
        return self if instance is None else types.MethodType(self._method, instance)

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        owner = self._owner
        has_self = owner is not None and bool(arguments) and isinstance(arguments[0], owner)
        return self._call(has_self, *arguments, **keywords)

    def _call(self, has_self: bool, /, *arguments: Any, **keywords: Any) -> Any:
        """Run the recording of these arguments; the first one is compared by identity if
        `has_self`."""
        values = (*arguments, *keywords.values()) if keywords else arguments
        arrays: list[AnyDeviceArray] = []
        key = ValueKey(MAX_CONSTANT_BYTES)
        key.parts += (len(arguments), *keywords)
        for index, value in enumerate(values):
            if isinstance(value, DeviceArray):
                arrays.append(value)
                key.parts += (DeviceArray, value.shape, value.dtype)
            elif isinstance(value, TypedArray):
                arrays.append(value)
                data = _get_data(value)
                key.parts += (TypedArray, data.shape, data.dtype, value.type_key)
            elif has_self and not index:
                key.add_identity(value)
            else:
                try:
                    key.add(value)
                except (NoKeyError, RecursionError) as error:
                    raise self._refuse(arguments, keywords, index, error) from None
        device = _find_device(arrays)
        key.parts.append(device)
        full_key = key.freeze()
        with self._lock:
            found = self._recordings.use(full_key)
            if found is None:
                recorded, results = self._record(device, arguments, keywords)
                found = self._recordings[full_key] = recorded, results, key.held
                self._recordings.evict(MAX_RECORDINGS)
            recorded, results, _ = found
            # Before anything runs: this fails if the results are not device arrays.
            copies, steps = _make_copies(device, results)
            recorded(*arrays)
            device.submit(steps)
            return copies

    def _record(
        self, device: ArrayDevice, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[Graph, Any]:
        made = [_make_like(device, each) if _is_input(each) else each for each in arguments]
        named = {
            name: _make_like(device, each) if _is_input(each) else each
            for name, each in keywords.items()
        }
        inputs = [each for each in (*made, *named.values()) if _is_input(each)]
        with Graph(device, inputs) as recorded:
            results = self._function(*made, **named)
        return recorded, results

    def _refuse(
        self,
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        index: int,
        error: NoKeyError | RecursionError,
    ) -> ArgumentTypeError:
        """The error of an argument that is no input and no constant."""
        function = getattr(self._function, "__name__", "the function")
        if index < len(arguments):
            name, given = _name_argument(self._function, index), arguments[index]
        else:
            name, given = list(keywords.items())[index - len(arguments)]
        where = f"{function}: argument {name!r} of the graph is {describe(given)}"
        if not isinstance(error, NoKeyError):
            return ArgumentTypeError(
                f"{where} that contains itself, or is nested too deeply; pass its values by "
                "themselves"
            )
        if error.value is not given:
            where += f" with {describe(error.value)} in it"
        if _is_input(error.value):
            return ArgumentTypeError(
                f"{where}; a device array is an input if it is an argument of its own: pass it as "
                "one"
            )
        advice = error.advice or (
            "a graph cannot tell whether it is another value at the next call. Pass the numbers, "
            "strings or small NumPy arrays that the function needs, in tuples, lists, dicts or a "
            "frozen dataclass; or let the function refer to it without an argument, if it never "
            "changes"
        )
        return ArgumentTypeError(f"{where}; {advice}")


def _name_argument(function: Callable[..., Any], index: int) -> str | int:
    """The name of a function's parameter by position; the position where it has no name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return index
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [each.name for each in parameters if each.kind in kinds]
    return names[index] if index < len(names) else index


def _is_input(value: Any) -> bool:
    """Whether an argument is an input: a device array, or a typed array, which must be on a
    device."""
    return isinstance(value, DeviceArray | TypedArray)


def _get_data(array: Any) -> DeviceArray:
    data = array.data if isinstance(array, TypedArray) else array
    if not isinstance(data, DeviceArray):
        raise ArgumentTypeError(
            f"a graph takes and returns device arrays, not {type(array).__name__}; "
            "gpu.to_device(array) copies an array to the device"
        )
    return data


def _find_device(arrays: Sequence[AnyDeviceArray]) -> ArrayDevice:
    """The device that holds all the arrays."""
    if not arrays:
        raise ArgumentTypeError("a graph needs at least one device array as its input")
    devices = [_get_data(array).storage.device for array in arrays]
    if any(device is not devices[0] for device in devices):
        raise ArgumentTypeError("the inputs of a graph must be on one device")
    device: ArrayDevice = devices[0]
    return device


def _make_like(device: ArrayDevice, array: AnyDeviceArray) -> AnyDeviceArray:
    """An uninitialized array of the same type and shape."""
    data = _get_data(array)
    made = device.empty(data.shape, data.dtype)
    return array.wrap_like(made) if isinstance(array, TypedArray) else made


def _make_copies(device: ArrayDevice, results: Any) -> tuple[Any, list[ArrayCopy]]:
    """New arrays for the results, one array or nested tuples, named tuples and lists, and the
    copies to them."""
    if isinstance(results, tuple | list):
        pairs = [_make_copies(device, each) for each in results]
        copies = _make_sequence(results, [copy for copy, _ in pairs])
        return copies, [step for _, steps in pairs for step in steps]
    copy = _make_like(device, results)
    return copy, [ArrayCopy(_get_data(results), _get_data(copy))]


def _make_sequence(like: Any, items: Iterable[Any]) -> Any:
    """A list, tuple or named tuple of the same type with other items."""
    kind = type(like)
    if kind is tuple or kind is list:
        return kind(items)
    if is_namedtuple(like):
        return kind._make(items)
    raise ArgumentTypeError(
        f"a graph returns device arrays in tuples, named tuples and lists, not in {describe(like)}"
    )
