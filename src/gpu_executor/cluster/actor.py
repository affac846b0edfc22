"""What runs in a process of its own beside each device: an actor with a persistent executor."""

from __future__ import annotations

import dataclasses
import os
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

from ray import cloudpickle

from gpu_executor.cluster.failure import Failure
from gpu_executor.cluster.parcel import Calls, unpacked
from gpu_executor.errors import NoDeviceError
from gpu_executor.executor import GpuExecutor
from gpu_executor.executor.seats import BackendName, Seat, chosen, ranked_seats
from gpu_executor.kernel import Kernel
from gpu_executor.settings import Settings


@dataclass(frozen=True, slots=True)
class DeviceOptions:
    """How an actor opens its device."""

    settings: Settings | None
    """None: what the environment of its machine says."""
    check: float


def seats_here(backend: BackendName) -> list[Seat] | Failure:
    """The best devices of the machine that this runs on: all of them are of one rank."""
    try:
        return chosen(ranked_seats(backend), None, "all")
    except Exception as error:
        return Failure.of(error)


class DeviceActor:
    """Takes one message at a time, in the order they were sent. Errors are returned."""

    def __init__(self) -> None:
        self._executor: GpuExecutor | None = None
        self._kernels: dict[int, Kernel | Failure] = {}

    def open(self, seat: Seat, options: DeviceOptions) -> int | Failure:
        """Open the device; the number of this process."""
        try:
            self._executor = _opened(seat, options)
        except Exception as error:
            return Failure.of(error)
        return os.getpid()

    def learn(self, number: int, pickled: bytes) -> None:
        """Keep a kernel under a number, by which messages name it."""
        try:
            self._kernels[number] = cloudpickle.loads(pickled)
        except Exception as error:  # the answer to every call of it
            self._kernels[number] = Failure.of(error)

    def run(self, number: int, calls: Calls, *stored: Any) -> list[Any]:
        """For each call its result, which Ray copies to the object store, or its failure."""
        assert self._executor is not None
        kernel = self._kernels[number]
        if isinstance(kernel, Failure):
            return [kernel] * len(calls)
        futures = [self._executor.submit(kernel, *arrays) for arrays in unpacked(calls, stored)]
        return [_outcome(future) for future in futures]

    def close(self) -> None:
        """Close the device; what it keeps on disk is written now."""
        if self._executor is not None:
            self._executor.shutdown()


def _opened(seat: Seat, options: DeviceOptions) -> GpuExecutor:
    backend = cast(BackendName, seat.backend)
    # How much waits is bounded where it is sent from: here it is taken whole.
    settings = dataclasses.replace(
        options.settings or Settings.from_environment(), queued_bytes=None, when_full="block"
    )
    seats = ranked_seats(backend, settings)
    for place, each in enumerate(seats):
        if (each.index, each.device) == (seat.index, seat.device):
            return GpuExecutor(backend, place, settings=settings, check=options.check)
    raise NoDeviceError(f"{seat} is not there any more; there are {', '.join(map(str, seats))}")


def _outcome(future: Future[Any]) -> Any:
    try:
        return future.result()
    except BaseException as error:
        return Failure.of(error)
