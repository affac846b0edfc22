"""`StepDevice`: what all devices have in common that run kernels on device arrays.

It makes steps of calls, binds steps to memory, and records graphs of them. How memory is allocated
and how bound steps reach the device is a backend's own.
"""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.call import Array, Call, copy_elements
from gpu_executor.calls.dispatch import (
    Algorithms,
    ArrayCopy,
    DeviceGraph,
    Dispatch,
    assign_array,
    copy_array,
    is_same_array,
)
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import GpuError
from gpu_executor.kernel import Shape
from gpu_executor.plan import CallPlan
from gpu_executor.steps.bound_steps import order_by_depth
from gpu_executor.steps.call_binder import CallForms
from gpu_executor.steps.status import StatusWord
from gpu_executor.steps.step_binder import (
    CallStep,
    CopyRules,
    DeviceStep,
    StepBinder,
    StorageStep,
)
from gpu_executor.steps.storage import DeviceStorage


class _Capture(threading.local):
    """Where the steps go that a thread submits while it records a graph."""

    steps: list[DeviceStep] | None = None
    made: list[DeviceStorage]
    """The storages that were made meanwhile."""


class _Secrecy(threading.local):
    """Whether a thread makes secret arrays."""

    is_on = False


class StepDevice(ABC):
    """Device arrays of a backend that runs kernels: most of an `ArrayDevice`."""

    runs_kernels = True

    def __init__(
        self,
        info: DeviceInfo,
        make_status_word: Callable[[], StatusWord],
        note_call: Callable[[int], None],
        copies: CopyRules,
        forms: CallForms,
    ) -> None:
        """`note_call` gets the bytes of the arrays that steps need at once."""
        self.info = info
        self._capture, self._secrecy = _Capture(), _Secrecy()
        self._binder = StepBinder(self, make_status_word, note_call, copies, forms)

    @abstractmethod
    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array."""

    @abstractmethod
    def put(self, array: Array, *, borrow: bool = False) -> DeviceArray:
        """A copy of a NumPy array on the device."""

    @abstractmethod
    def compile_ahead(self, dispatches: Sequence[Dispatch]) -> None:
        """Begin to compile what dispatches need that will be submitted soon; returns at once."""

    def describe_pipelines(self, dispatches: Sequence[Dispatch]) -> str | None:
        """In which form the pipelines of dispatches are there, in words; None where there is one
        form."""
        return None

    @abstractmethod
    def compile_all(
        self, dispatches: Sequence[Dispatch], progress: Callable[[int, int], None]
    ) -> int:
        """Compile what dispatches need, wait for it, and return the number of pipelines."""

    @abstractmethod
    def _submit_bound(self, steps: Sequence[StorageStep]) -> None:
        """Run bound steps in order, after everything submitted before; returns at once."""

    @abstractmethod
    def _record_bound(
        self, steps: Sequence[StorageStep], made: Sequence[DeviceStorage], count: int
    ) -> DeviceGraph:
        """A graph of bound steps. `made` are the storages whose contents they compute; `count` is
        the number of steps before they were bound."""

    @property
    def computes_float64(self) -> bool:
        """Whether kernels compute with float64."""
        return "shaderFloat64" in self.info.features

    @property
    def is_recording(self) -> bool:
        """Whether this thread records a graph."""
        return self._capture.steps is not None

    @property
    def makes_secrets(self) -> bool:
        """Whether the arrays are secret that this thread makes."""
        return self._secrecy.is_on

    @contextlib.contextmanager
    def secret_arrays(self, secret: bool = True) -> Iterator[None]:
        """Arrays that this thread makes inside the `with` are secret, or not secret: the memory of
        secret ones is overwritten when they are gone, before anything else gets it."""
        before, self._secrecy.is_on = self._secrecy.is_on, secret
        try:
            yield
        finally:
            self._secrecy.is_on = before

    def copy(self, array: DeviceArray) -> DeviceArray:
        """A contiguous copy of an array."""
        return copy_array(array)

    def assign(self, target: DeviceArray, value: Any) -> None:
        """Copy a NumPy array, a number or a device array to an array."""
        assign_array(target, value)

    def _note_made(self, storage: DeviceStorage) -> None:
        """Note a new storage, whose contents a graph computes if this thread records one."""
        if self._capture.steps is not None:
            storage.is_pending = True
            self._capture.made.append(storage)

    def run(self, call: Call, plan: CallPlan) -> None:
        """Submit a call whose arrays are device arrays; returns at once.

        Its outputs are made here, unless the caller gave some. An in-out argument that is not its
        own result is copied to the result, which the kernel changes.
        """
        signature = call.signature
        if not call.results:
            made = [self.empty(shape, dtype) for shape, dtype in signature.results]
            call.set_device_outputs(made)
        if not signature.count:
            return
        if signature.reads_then_writes:
            self.submit([CallStep(call, (*call.inputs, *call.results), plan)])
            return
        inputs, outputs = iter(call.inputs), iter(call.results)
        arrays: list[DeviceArray] = []
        steps: list[DeviceStep] = []
        for operand in signature.operands:
            array = next(outputs if operand.is_output else inputs)
            if operand.is_input and operand.is_output:
                passed = next(inputs)
                if not is_same_array(passed, array):
                    steps.append(ArrayCopy(_match_layout(passed, array), array))
            arrays.append(array)
        steps.append(CallStep(call, tuple(arrays), plan))
        self.submit(steps)

    def check_owner(self, call: Call) -> None:
        """Refuse a call with an array of another device."""
        for array in (*call.inputs, *call.results):
            if isinstance(array, DeviceArray):
                self._binder.find_storage(array)

    def run_call(self, call: Call, plan: CallPlan) -> None:
        """Submit a call some of whose arrays may be NumPy arrays. Inputs are copied to the device
        first. The results are device arrays; if the call has NumPy arrays for them, these are
        waited for."""
        targets: list[Any] = []
        if call.results and not isinstance(call.results[0], DeviceArray):
            targets, call.results = call.results, []
        call.inputs = [
            array if isinstance(array, DeviceArray) else self.put(array) for array in call.inputs
        ]
        self.run(call, plan)
        if targets:
            fetched = [array.numpy() for array in call.results]
            for target, array in zip(targets, fetched, strict=True):
                copy_elements(array, target)
            call.results = targets

    def submit(self, steps: Sequence[DeviceStep]) -> None:
        """Run steps in order, after everything submitted before; returns at once.

        While this thread records a graph, the steps become part of the graph instead. Dispatches
        without elements are left out: WebGPU refuses the empty ranges that they would bind.
        """
        steps = [each for each in steps if not (isinstance(each, Dispatch) and each.is_empty)]
        if self._capture.steps is not None:
            self._capture.steps += steps
            return
        self._submit_bound(self._binder.bind(steps))

    def run_operation(
        self, operation: Algorithms, arguments: tuple[Any, ...], options: Mapping[str, Any]
    ) -> Any:
        """Run the algorithm that is made of steps."""
        return operation.step_algorithm(*arguments, **options)

    def begin_capture(self) -> None:
        """Record what this thread submits from now on instead of running it."""
        if self._capture.steps is not None:
            raise GpuError(
                "a graph is being recorded already in this thread; graphs cannot be nested"
            )
        self._capture.steps, self._capture.made = [], []

    def end_capture(self, *, discard: bool = False, reorders: bool = False) -> DeviceGraph | None:
        """Stop recording; return what was recorded, unless it is to be discarded. With `reorders`,
        independent steps are recorded as neighbours, so that they may overlap."""
        steps, self._capture.steps = self._capture.steps, None
        made, self._capture.made = self._capture.made, []  # the graph alone keeps them
        assert steps is not None
        if discard:
            return None
        bound = self._binder.bind(steps, recorded=True)
        if reorders:
            bound = order_by_depth(bound)
        return self._record_bound(bound, made, len(steps))

    @contextlib.contextmanager
    def pause_capture(self) -> Iterator[None]:
        """Run what this thread submits inside the `with`, even if it records a graph."""
        steps, self._capture.steps = self._capture.steps, None
        try:
            yield
        finally:
            self._capture.steps = steps


def _match_layout(passed: DeviceArray, result: DeviceArray) -> DeviceArray:
    """An in-out argument with the shape and the dtype of its result: an argument that came from the
    host has all elements along one axis, and the fields of structs may have other names."""
    if passed.shape == result.shape and passed.dtype == result.dtype:
        return passed
    strides = None if passed.is_contiguous else passed.strides
    return DeviceArray(result.shape, result.dtype, passed.storage, passed.offset, strides)
