"""CpuBackend: runs the NumPy references of kernels, with the interface of the GPU backends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.idle_memory import MemoryUse
from gpu_executor.arrays.overlaps import list_outputs
from gpu_executor.backend import BackendStats, DeviceArrays, PlainArrays, refuse
from gpu_executor.calls.arguments import collect_jobs, describe
from gpu_executor.calls.call import (
    Array,
    Signature,
    SignatureCache,
    arrays_to_explain,
    as_arrays,
    check,
    check_keep,
    iterate_params,
)
from gpu_executor.calls.streams import SequentialStream, StreamJob
from gpu_executor.cpu.device_memory import CpuMemory, describe_host
from gpu_executor.cpu.reference import (
    arrange_inputs,
    arrange_outputs,
    check_has_reference,
    compute_reference,
)
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import (
    ArgumentTypeError,
    ClosedError,
    ElementRangeError,
    GpuError,
)
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.plan import Plan
from gpu_executor.telemetry.profile import ActiveProfile, StageProfile
from gpu_executor.telemetry.spans import TraceFile
from gpu_executor.telemetry.stages import StageCounters, sum_counters

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CpuStats(BackendStats):
    """Counters since the backend was opened."""


@dataclass(frozen=True, slots=True)
class CpuPlan(Plan):
    """How a call runs on the CPU."""

    kernel: Kernel
    count: int

    def __str__(self) -> str:
        return (
            f"{self.count:,} elements of {self.kernel.name} on the CPU: one call of its NumPy "
            "reference"
        )


class UsedInPlace:
    """An array whose own memory the CPU backend uses, as it does with every array."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def close(self) -> None:
        """Do nothing: there is nothing to free."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class CpuBackend(DeviceArrays, PlainArrays):
    """Runs any kernel that has a `reference`, without a GPU; another one raises `KernelError`.

    The references of field kernels are exact, and vectorised over the elements. Device arrays are
    in host memory.
    """

    name = "cpu"

    def __init__(self) -> None:
        self._info = describe_host()
        self._memory = CpuMemory(self._info)
        self._lock = threading.Lock()
        self._record = StageCounters()
        self._profiles = ActiveProfile(self._info.name)
        self._closed = False

    @property
    def device(self) -> DeviceInfo:
        """The host, described as a device."""
        return self._info

    def _empty_exportable(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        return self._memory.empty(shape, dtype)  # all memory of the host can be shared

    def wait_for_stream(self, stream: Any) -> None:
        raise refuse("wait_for_stream", self.name)

    def make_stream_wait(self, stream: Any) -> None:
        raise refuse("make_stream_wait", self.name)

    # --- calls ---

    def run(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike | DeviceArray,
        out: Any = None,
        keep: bool | None = None,
        params: Any = None,
        out_shape: Any = None,
    ) -> Any:
        self._check_open()
        given = as_arrays(kernel, arrays)
        if keep or _are_on_device(given) or _are_on_device(list_outputs(out)):
            return self._run_on_device(kernel, given, out, keep, params, out_shape)
        call = check(kernel, given, out_shape=out_shape).make_call(given, params)
        if out is not None:
            call.use_outputs(out)
        call.make_outputs()
        self._compute(call.signature, given, call.results, params)
        return call.result()

    def run_batch(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> list[Any]:
        self._check_open()
        given, outs = collect_jobs(jobs, out)
        entries = [
            StreamJob(index, arrays, outs and outs[index], own)
            for index, (arrays, own) in enumerate(zip(given, iterate_params(params, len(given))))  # noqa: B905
        ]
        signatures = SignatureCache()  # not for longer: it keeps the kernel alive
        for job in entries:
            self._check_job(signatures, kernel, job, keep)
        return [self._run_job(kernel, job, keep) for job in entries]

    def stream(
        self,
        kernel: Kernel,
        jobs: Iterable[Sequence[Any]],
        *,
        out: Iterable[Any] | None = None,
        keep: bool | None = None,
        params: Any = None,
    ) -> SequentialStream:

        signatures = SignatureCache()

        def run(job: StreamJob) -> Any:
            self._check_open()
            self._check_job(signatures, kernel, job, keep)
            return self._run_job(kernel, job, keep)

        self._check_open()
        return SequentialStream(run, jobs, out, params)

    # --- arrays ---

    def import_array(self, array: Array) -> UsedInPlace:
        """Return the array as it is: the CPU uses the memory of every array.

        Args:
            array (array): A NumPy array.
        """
        self._check_open()
        if not isinstance(array, np.ndarray):
            raise ArgumentTypeError(
                f"import_array: the argument is {describe(array)}; it takes a NumPy array"
            )
        return UsedInPlace(array)

    @property
    def array_device(self) -> CpuMemory:
        """What holds the device arrays."""
        return self._memory

    # --- inspection and lifetime ---

    def explain(
        self,
        kernel: Kernel,
        *arrays: npt.ArrayLike | DeviceArray,
        params: Any = None,
        out_shape: Any = None,
    ) -> CpuPlan:
        self._check_open()
        given = self._view_all(arrays_to_explain(kernel, arrays))
        signature = check(kernel, given, out_shape=out_shape)
        check_has_reference(kernel)
        return CpuPlan(kernel, signature.count)

    def stats(self) -> CpuStats:
        """Return the number of calls and elements, and the time they took."""
        with self._lock:
            record = sum_counters([self._record])
        held = self._memory.nbytes
        return CpuStats(
            device=self._info.name,
            calls=record.calls,
            elements=record.elements,
            chunks=record.chunks,
            dispatches=0,
            seconds_by_stage=record.seconds(),
            bytes_held=held,
            memory_use=MemoryUse({"device arrays": held}, {}, 0, 0, 0),
        )

    def profile(self, *, trace: str | Path | None = None) -> StageProfile:
        """Record the time of all calls until the `with` ends: `stages()`, `save_trace(path)`. The
        only stage is compute: nothing is copied.

        Args:
            trace (str | Path): The file to which the trace is written when the `with` ends.
        """
        self._check_open()
        return self._profiles.start(TraceFile(trace))

    def trim(self) -> int:
        """Drop cached tables of device arrays; returns the number of bytes freed."""
        self._check_open()
        return self._memory.trim()

    def close(self) -> None:
        """Refuse further calls. Device arrays stay valid: they are ordinary memory."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the backend is closed; open another one")

    def _run_on_device(
        self,
        kernel: Kernel,
        given: Sequence[Any],
        out: Any,
        keep: bool | None,
        params: Any,
        out_shape: Any,
    ) -> Any:
        """Run a call that takes or returns device arrays, or record it in a graph."""
        memory = self._memory
        signature = check(kernel, given, out_shape=out_shape)
        call = signature.make_call(given, params)
        inputs = self._view_all(given)
        if out is not None:
            check_keep(kernel, keep, out)
            call.use_outputs(out, on_device=True)
        elif keep is False:
            call.make_outputs()
        else:
            call.set_device_outputs(
                [memory.empty(shape, dtype) for shape, dtype in signature.results]
            )
        if memory.is_recording:
            if not _are_on_device(call.results):
                raise GpuError(
                    f"{kernel.name}: a graph is being recorded, so there is no result for a NumPy "
                    "array yet; leave its `with` block and call the graph first"
                )
            # The graph runs later, when the caller may have changed the NumPy arrays.
            inputs = [
                each.copy() if isinstance(argument, np.ndarray) else each
                for argument, each in zip(given, inputs, strict=True)
            ]
        outputs = self._view_all(call.results)
        memory.perform(lambda: self._compute(signature, inputs, outputs, params))
        return call.result()

    def _check_job(
        self, signatures: SignatureCache, kernel: Kernel, job: StreamJob, keep: bool | None
    ) -> None:
        """Raise as the job's call would, with its index."""
        signatures.make_job_call(kernel, job.arrays, job.number, job.out, job.params, keep=keep)

    def _run_job(self, kernel: Kernel, job: StreamJob, keep: bool | None) -> Any:
        try:
            return self.run(kernel, *job.arrays, out=job.out, keep=keep, params=job.params)
        except ElementRangeError as error:
            raise error.in_job(job.number) from None

    def _view_all(self, arrays: Sequence[Any]) -> list[Any]:
        """The arrays, with NumPy views in place of device arrays."""
        return [
            self._memory.view(each) if isinstance(each, DeviceArray) else each for each in arrays
        ]

    def _compute(
        self, signature: Signature, inputs: Sequence[Array], outputs: Sequence[Array], params: Any
    ) -> None:
        """Write the results to `outputs`; those that are not contiguous are copied there."""
        profile = self._profiles.profile
        begun = time.perf_counter_ns()
        targets = [
            each if each.flags.c_contiguous else np.empty(each.shape, each.dtype)
            for each in outputs
        ]
        compute_reference(
            signature,
            arrange_inputs(signature, inputs),
            arrange_outputs(signature, targets),
            signature.parameters.as_keywords(params),
        )
        for output, target in zip(outputs, targets, strict=True):
            if target is not output:
                output[...] = target
        ended = time.perf_counter_ns()
        if profile is not None:
            profile.add_host_span("compute", begun, ended, profile.next_chunk())
        with self._lock:
            self._record.calls += 1
            self._record.chunks += 1
            self._record.elements += signature.count
            self._record.compute += ended - begun


def _are_on_device(arrays: Sequence[Any]) -> bool:
    return any(isinstance(each, DeviceArray) for each in arrays)
