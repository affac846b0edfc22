"""The Ray actor: a process on the node of a device that keeps a persistent executor open. Users may
start actors of their own classes beside devices, too."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import ray
from ray import cloudpickle

from gpu_executor.calls.arguments import describe
from gpu_executor.cluster.nodes import find_placements, pin_to_node
from gpu_executor.cluster.serialization import PackedCalls, RemoteFailure, unpack_calls
from gpu_executor.errors import ArgumentTypeError, NoDeviceError
from gpu_executor.executor import GpuExecutor
from gpu_executor.executor.candidates import BackendName, DeviceCandidate, rank_devices
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How an actor opens its device."""

    settings: Settings | None
    """None: the settings come from the environment of the actor's node."""
    check: float
    """The `check=` of the actor's `GpuExecutor`."""


class ArrayLayout(NamedTuple):
    """What `explain` needs to know of an array, without its elements."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def make_placeholder(self) -> npt.NDArray[Any]:
        """An array of this layout, without memory for its elements."""
        return np.broadcast_to(np.zeros((), self.dtype), self.shape)


class DeviceActor:
    """Runs kernels on one device. Ray calls its methods one at a time, in the order sent.

    Exceptions are returned as `RemoteFailure`, not raised.
    """

    def __init__(self) -> None:
        self._executor: GpuExecutor | None = None
        self._kernels: dict[int, Kernel | RemoteFailure] = {}

    def open(self, candidate: DeviceCandidate, options: DeviceOptions) -> int | RemoteFailure:
        """Open the device and return the ID of this process."""
        try:
            self._executor = _open_executor(candidate, options)
        except Exception as error:
            return RemoteFailure.from_exception(error)
        return os.getpid()

    def add_kernel(self, kernel_id: int, pickled: bytes) -> None:
        """Store a kernel under the ID that messages refer to."""
        try:
            self._kernels[kernel_id] = cloudpickle.loads(pickled)
        except Exception as error:  # every call of this kernel will return the failure
            self._kernels[kernel_id] = RemoteFailure.from_exception(error)

    def run(self, kernel_id: int, calls: PackedCalls, *top_level: Any) -> list[Any]:
        """Run a kernel on each call; return each call's result or its `RemoteFailure`."""
        assert self._executor is not None
        kernel = self._kernels[kernel_id]
        if isinstance(kernel, RemoteFailure):
            return [kernel] * len(calls)
        futures = [
            self._executor.submit(
                kernel, *call.arrays, params=call.params, out_shape=call.out_shape
            )
            for call in unpack_calls(calls, top_level)
        ]
        return [_wait_for_outcome(future) for future in futures]

    def trim(self) -> int | RemoteFailure:
        """Free memory that no call needs, and return the number of bytes freed."""
        assert self._executor is not None
        try:
            return self._executor.trim()
        except Exception as error:
            return RemoteFailure.from_exception(error)

    def explain(
        self, pickled: bytes, arrays: Sequence[ArrayLayout | int], params: Any, out_shape: Any
    ) -> str | RemoteFailure:
        """How the device would run a kernel on arrays of these layouts, or on n elements."""
        assert self._executor is not None
        try:
            given = [each if isinstance(each, int) else each.make_placeholder() for each in arrays]
            kernel = cloudpickle.loads(pickled)
            return str(self._executor.explain(kernel, *given, params=params, out_shape=out_shape))
        except Exception as error:
            return RemoteFailure.from_exception(error)

    def close(self) -> None:
        """Close the device, which writes its caches to disk."""
        if self._executor is not None:
            self._executor.shutdown()


def start_actors(
    cls: type[Any], backend: BackendName = "auto", devices: Literal["all"] | int = "all"
) -> list[Any]:
    """Start an actor of the caller's class beside each of the best devices in the cluster, for what
    is no kernel. The caller initializes Ray, and the actors end as those of Ray do: with the
    last handle, or with Ray.

    Args:
        cls (type): In each actor it is called with one argument, a `GpuExecutor` that is open on
            the device.
        backend (str): As in `RayExecutor`.
        devices (str | int): As in `RayExecutor`.

    Returns:
        A list of Ray's handles of the actors.

    Raises:
        NoDeviceError: No node has such a device.
    """
    if not isinstance(cls, type):
        raise ArgumentTypeError(f"start_actors takes a class, not {describe(cls)}")

    class OwnActor(cls):  # type: ignore[misc]
        def __init__(self, candidate: DeviceCandidate) -> None:
            super().__init__(_open_executor(candidate, DeviceOptions(None, 0.0)))

    OwnActor.__name__ = OwnActor.__qualname__ = cls.__name__
    placements = find_placements(backend, devices)
    return [
        pin_to_node(ray.remote(OwnActor), each.node).remote(each.candidate) for each in placements
    ]


def _open_executor(candidate: DeviceCandidate, options: DeviceOptions) -> GpuExecutor:
    backend = cast(BackendName, candidate.backend)
    # The dispatcher limits what is in flight, so the actor's own queue takes whole messages.
    settings = dataclasses.replace(
        options.settings or Settings.from_environment(), queued_bytes=None, when_full="block"
    )
    ranking = rank_devices(backend, settings)
    for position, each in enumerate(ranking):
        if (each.index, each.device) == (candidate.index, candidate.device):
            return GpuExecutor(backend, position, settings=settings, check=options.check)
    raise NoDeviceError(
        f"{candidate} is no longer available; the node has {', '.join(map(str, ranking))}"
    )


def _wait_for_outcome(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BaseException as error:
        return RemoteFailure.from_exception(error)
