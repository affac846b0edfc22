"""VulkanSpirvBackend: creates and frees everything in each call, as a baseline for comparisons."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.idle_memory import MemoryUse
from gpu_executor.backend import BackendStats, HostArraysOnly, refuse
from gpu_executor.calls.call import Array, SignatureCache, arrays_to_explain, as_arrays
from gpu_executor.calls.streams import SequentialStream, StreamJob
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import ClosedError, ElementRangeError
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels import load
from gpu_executor.plan import CallPlan, RunOptions
from gpu_executor.settings import Settings, resolve_settings
from gpu_executor.telemetry.profile import StageProfile
from gpu_executor.telemetry.stages import STAGES
from gpu_executor.vulkan.batch import run_batch
from gpu_executor.vulkan.instance import find_device
from gpu_executor.vulkan.session import Session
from gpu_executor.vulkan.vulkan_stats import Stats


@dataclass(frozen=True, slots=True)
class OneShotStats(BackendStats):
    """Counters of all calls together. Nothing is held between calls, so the memory is 0."""

    last: Stats | None
    """The counters of the last call; None before the first one."""


class VulkanSpirvBackend(HostArraysOnly):
    """The same `run` as the persistent backend, with nothing cached between calls.

    Args:
        device (str | int | None): An index, a prefix of the UUID or a part of the name of the
            device; None: that of the settings, or the best one.
        settings (Settings | None): None: those of the environment.
    """

    name = "vulkan-one-shot"

    def __init__(
        self, device: str | int | None = None, *, settings: Settings | None = None
    ) -> None:
        self._settings = resolve_settings(settings)
        self._wanted = self._settings.device if device is None else device
        self._info: DeviceInfo | None = None
        self._signatures = SignatureCache(on_device=False)
        self._closed = False
        self._lock = threading.Lock()  # for what follows
        self._last: Stats | None = None
        self._counts: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self._messages: list[str] = []

    @property
    def device(self) -> DeviceInfo:
        """The device that calls open."""
        if self._info is None:
            self._info = find_device(self._wanted)
        return self._info

    def run(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike,
        device_local: bool | None = None,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        """Open a device, run the kernel on NumPy arrays, close the device.

        Args:
            kernel (Kernel): The kernel to run.
            *arrays (array): Its inputs and in-out arguments in binding order.
            device_local (bool | None): True stages the data through device memory, False lets the
                kernel work on mapped host memory; None: as the settings, the size and the device
                suggest.
            out (array | tuple): The array to write to, or a tuple of one per result; may be an
                input.
            keep (bool | None): True is refused: there are no device arrays.
            params (dict | tuple): Values of the kernel's parameters, by name or by position.
            out_shape (tuple | list): Replaces the kernel's `out_shape`.
        """
        self._check_keep(keep)
        given = as_arrays(kernel, arrays)
        call = self._signatures.get(kernel, given, out_shape).make_call(given, params)
        if out is not None:
            call.use_outputs(out)  # checked before a device is opened
        with self._open_session() as session:
            return session.run(kernel, given, device_local, out, params=params, out_shape=out_shape)

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        device_local: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        """Open a device, run a batch of jobs one after the other, close the device.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`: True raises `NotSupportedError`.
            device_local (bool | None): As in `run`.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.
        """
        self._check_keep(keep)
        options = RunOptions(device_local, pipelined=False)
        with self._open_session() as session:
            return run_batch(session, kernel, jobs, out, options, params)

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        device_local: bool | None = None,
        params: Any = None,
    ) -> SequentialStream:
        """Run a kernel on jobs as they come; yields results in order. Each job opens a device.

        Args:
            kernel (Kernel): The kernel to run.
            jobs (iterable of tuples): The arrays of each job; it may be infinite.
            out (iterable): The array, or tuple of arrays, to write each job's result to.
            keep (bool | None): As in `run`: True raises `NotSupportedError`.
            device_local (bool | None): As in `run`.
            params (dict | tuple | list): Values for all jobs; a list has one entry for each job.
        """
        self._check_keep(keep)

        def run(job: StreamJob) -> Any:
            self._check_open()
            index, arrays, target, own = job
            self._signatures.make_job_call(kernel, arrays, index, target, own)
            try:
                return self.run(kernel, *arrays, device_local=device_local, out=target, params=own)
            except ElementRangeError as error:
                raise error.in_job(index) from None

        self._check_open()
        return SequentialStream(run, jobs, out, params)

    def run_field_add(self, a: Array, b: Array, device_local: bool | None = None) -> Array:
        """Add BLS12-381 base-field elements: (n, 6) `uint64`, little-endian, below the modulus.

        Args:
            a (array): The first elements.
            b (array): The second elements, of the same shape.
            device_local (bool | None): As in `run`.
        """
        result: Array = self.run(load("bls12_381_fq_add"), a, b, device_local=device_local)
        return result

    def empty(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        raise refuse("empty", self.name)

    def zeros(self, shape: int | Shape, dtype: npt.DTypeLike = np.float64) -> Array:
        raise refuse("zeros", self.name)

    def asarray(self, array: Any) -> Any:
        raise refuse("asarray", self.name)

    def explain(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike,
        device_local: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> CallPlan:
        """Open a device and return the plan that `run` would follow.

        Args:
            kernel (Kernel): The kernel.
            *arrays (array): The arguments of `run`, or one integer alone, a number of elements.
            device_local (bool | None): As in `run`.
            params (dict | tuple): As in `run`.
            out_shape (tuple | list): As in `run`.
        """
        given = arrays_to_explain(kernel, arrays)
        with self._open_session(counts=False) as session:
            return session.explain(kernel, given, device_local, params=params, out_shape=out_shape)

    def profile(self, *, trace: str | Path | None = None) -> StageProfile:
        raise refuse("profile", self.name)

    def stats(self) -> OneShotStats:
        """Return the counters of all calls, and in `last` those of the last one."""
        last = self._last
        return OneShotStats(
            device=self.device.name,
            calls=self._counts["calls"],
            elements=self._counts["elements"],
            chunks=self._counts["chunks"],
            dispatches=0,
            seconds_by_stage={stage: self._seconds[stage] for stage in STAGES},
            bytes_held=0,
            memory_use=MemoryUse({}, {}, 0, 0, 0 if last is None else last.memory_use.largest_call),
            last=last,
        )

    def trim(self) -> int:
        """Return 0: nothing is kept between calls."""
        self._check_open()
        return 0

    def validation_messages(self) -> list[str]:
        """Return the messages of the validation layer, if the settings enable it."""
        return list(self._messages)

    def close(self) -> None:
        """Refuse further calls. There is nothing to free: each call frees what it created."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the backend is closed; open another one")

    @contextlib.contextmanager
    def _open_session(self, *, counts: bool = True) -> Iterator[Session]:
        """Open a device for one call. `counts` says whether the call is in the statistics."""
        self._check_open()
        session = Session(self._settings, self._wanted, keep=False)
        try:
            yield session
        finally:
            last = session.stats()
            session.close()
            with self._lock:
                self._messages += session.instance.messages
                if counts:
                    self._last = last
                    counted = {"calls": last.calls, "elements": last.elements}
                    self._counts.update(counted, chunks=last.chunks)
                    self._seconds.update(last.seconds_by_stage)
