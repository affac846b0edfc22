"""Serialization between the caller and an actor: kernels, arrays, results and exceptions.

Ray puts every top-level argument of more than 100 KB into the object store of the caller's node,
once. An actor on that node reads the argument there, without a copy. Each top-level argument takes
Ray some time. So small arrays are part of the message, and only large arrays and object references
are top-level arguments.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from ray import cloudpickle

from gpu_executor.calls.call import Array
from gpu_executor.errors import GpuError
from gpu_executor.executor.jobs import CallArguments
from gpu_executor.kernel import Kernel

MAX_INLINE_BYTES = 100 << 10
"""The largest array that Ray sends inside a message (its `max_direct_call_object_size`)."""

# --- kernels ---


class KernelRegistry:
    """Gives each kernel of one executor an ID, and pickles it once. Used by one thread."""

    def __init__(self) -> None:
        self._registered: dict[Kernel, tuple[int, bytes]] = {}

    def register(self, kernel: Kernel) -> tuple[int, bytes]:
        """Return the kernel's ID and the pickled kernel; closures in it are pickled by value."""
        registered = self._registered.get(kernel)
        if registered is None:
            registered = len(self._registered), cloudpickle.dumps(kernel)
            self._registered[kernel] = registered
        return registered


# --- arrays ---


@dataclass(frozen=True, slots=True)
class TopLevelArgument:
    """Stands in a packed call for an array that is a top-level argument of the message."""

    index: int


class PackedCall(NamedTuple):
    """A call as it is sent, without its `out`: actors return new arrays."""

    arrays: tuple[Array | TopLevelArgument, ...]
    params: Any
    out_shape: Any


PackedCalls = list[PackedCall]


def pack_calls(calls: Sequence[CallArguments]) -> tuple[PackedCalls, list[Any]]:
    """Split the arrays of several calls into the packed calls and the top-level arguments."""
    top_level: list[Any] = []

    def pack(each: Any) -> Array | TopLevelArgument:
        if isinstance(each, np.ndarray) and each.nbytes <= MAX_INLINE_BYTES:
            return each
        top_level.append(_make_contiguous(each) if isinstance(each, np.ndarray) else each)
        return TopLevelArgument(len(top_level) - 1)

    packed = [
        PackedCall(tuple(map(pack, call.arrays)), call.params, call.out_shape) for call in calls
    ]
    return packed, top_level


def unpack_calls(calls: PackedCalls, top_level: Sequence[Any]) -> list[CallArguments]:
    """Return the calls; large arrays are read-only views of the object store."""

    def unpack(each: Any) -> Any:
        return top_level[each.index] if isinstance(each, TopLevelArgument) else each

    return [
        CallArguments(tuple(map(unpack, call.arrays)), params=call.params, out_shape=call.out_shape)
        for call in calls
    ]


def _make_contiguous(array: Array) -> Array:
    # Ray pickles a strided array in-band, and the actor would copy it when it unpickles it.
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return array
    return array.copy()


# --- results ---


def detach_results(outcomes: Sequence[Any]) -> Sequence[Any]:
    """Return the outcomes of one message such that no two results share memory.

    A single result stays as it is: a read-only view of Ray's memory. Several results are copied,
    because each view would keep the memory of all of them alive. The copies are read-only too, so
    that whether a caller may write to a result does not depend on its size.
    """
    if len(outcomes) == 1:
        return outcomes
    return [each if isinstance(each, RemoteFailure) else _copy_result(each) for each in outcomes]


def _copy_result(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(map(_copy_read_only, result))
    return _copy_read_only(result)


def _copy_read_only(array: Array) -> Array:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


# --- exceptions ---


@dataclass(frozen=True, slots=True)
class RemoteFailure:
    """An exception that an actor or a task returns in place of a result.

    The exception is returned, not raised: Ray would wrap a raised exception, and it would be the
    only answer to a message of many calls.
    """

    pickled: bytes
    """Empty if the exception cannot be pickled; then only `text` is known."""
    text: str

    @classmethod
    def from_exception(cls, error: BaseException) -> RemoteFailure:
        """Serialize an exception; one that cannot be pickled is reduced to its text."""
        text = "".join(traceback.format_exception_only(error)).strip()
        try:
            return cls(cloudpickle.dumps(_reduce_exception(error)), text)
        except Exception:
            return cls(b"", text)

    def to_exception(self) -> BaseException:
        """Return the exception, or a `GpuError` with its text if it cannot be unpickled here."""
        try:
            return _rebuild_exception(cloudpickle.loads(self.pickled))
        except Exception:
            return GpuError(self.text)


def _reduce_exception(error: BaseException) -> Any:
    # A GpuError may build its text from several arguments. Pickle would pass only the text to the
    # constructor, so the class, the arguments and the attributes are sent separately.
    if isinstance(error, GpuError):
        return type(error), error.args, error.__dict__
    return error


def _rebuild_exception(reduced: Any) -> BaseException:
    if isinstance(reduced, BaseException):
        return reduced
    kind, args, state = reduced
    error: BaseException = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error
