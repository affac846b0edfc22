"""A load generator: the random calls of one thread, each of them checked."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from numpy.random import Generator

from gpu_executor.errors import OutOfMemoryError, VulkanError
from gpu_executor.executor import GpuExecutor
from gpu_executor.soak.call_methods import CALL_METHODS, CallMethod, FutureOutcome
from gpu_executor.soak.fault_injection import FaultInjector
from gpu_executor.soak.field_operations import FieldOperationRunner
from gpu_executor.soak.tally import Tally
from gpu_executor.soak.workload import (
    FIELD_KERNELS,
    KERNELS,
    MAX_ELEMENTS,
    CheckedCall,
    draw_call,
    draw_size,
)

FIELD_OPERATIONS = "device-resident fields"
"""The name that sequences of field operations are counted under."""
FIELD_OPERATIONS_SHARE = 0.1
INVALID_SHARE = 0.03
RETAINED_RESULTS = 32
"""Results that are retained and checked again later. This detects a device that writes to an array
after the caller received it."""
FATAL_FAULTS = 2
"""A call during which at least this many faults fire may fail; the executor must recover from a
single fault."""


class LoadGenerator:
    """Calls executors and checks what they return.

    Its random choices depend on its seed alone, not on what other threads do meanwhile.
    """

    def __init__(
        self,
        rng: Generator,
        executors: Sequence[GpuExecutor],
        faults: FaultInjector,
        tally: Tally,
    ) -> None:
        self._rng, self._executors = rng, executors
        self._faults, self._tally = faults, tally
        self._retained: deque[tuple[str, CheckedCall, Any]] = deque()
        self.field_operations = FieldOperationRunner()
        self.activity = "nothing"
        """A description of what the thread is doing."""

    def run(self, until: float) -> None:
        """Make calls until that time of the monotonic clock."""
        while time.monotonic() < until:
            self._faults.arm_if_due()
            if self._rng.random() < FIELD_OPERATIONS_SHARE:
                self._run_field_operations()
            else:
                self._call_executor()

    def recheck_results(self, retain: int = 0) -> None:
        """Check the retained results again and drop them, except the newest `retain`."""
        while len(self._retained) > retain:
            method, call, result = self._retained.popleft()
            error = call.find_error(result)
            if error is not None:
                self._tally.report("wrong", f"{method}, changed after it had been checked: {error}")

    def _call_executor(self) -> None:
        rng = self._rng
        method = CALL_METHODS[rng.integers(len(CALL_METHODS))]
        executor = self._executors[int(rng.integers(len(self._executors)))]
        calls = self._draw_calls(method)
        self.activity = f"{method.name} of {len(calls)} on {executor!r}"
        before = self._faults.count
        for call, outcome in method.call(executor, calls, rng):
            self._check(method.name, executor, call, outcome, self._faults.count - before)

    def _draw_calls(self, method: CallMethod) -> list[CheckedCall]:
        rng = self._rng
        number = draw_size(rng, method.max_calls)
        name = str(rng.choice(KERNELS))
        calls = []
        for _ in range(number):
            invalid = method.mixed and rng.random() < INVALID_SHARE
            if method.mixed and rng.random() < 0.2:
                name = str(rng.choice(KERNELS))
            kernel = str(rng.choice(FIELD_KERNELS)) if invalid else name
            calls.append(draw_call(rng, kernel, MAX_ELEMENTS // number, invalid=invalid))
        return calls

    def _check(
        self, method: str, executor: GpuExecutor, call: CheckedCall, outcome: Any, faults: int
    ) -> None:
        where = f"{method} on {executor!r}"
        if outcome is FutureOutcome.CANCELLED:
            self._tally.count(method, call.elements, "cancelled")
            return
        if isinstance(outcome, FutureOutcome):
            self._tally.count(method, call.elements, None)
            name = call.kernel.name
            if outcome is FutureOutcome.TIMED_OUT:
                self._tally.report("lost", f"{where}: no result of {name}")
            else:
                self._tally.report(
                    "answered twice", f"{where}: a result of {name} after it was cancelled"
                )
            return
        error = call.find_error(outcome)
        if error is None:
            refused = isinstance(outcome, Exception)
            self._tally.count(method, call.elements, "refused" if refused else "right")
            if not refused:
                self._retained.append((method, call, outcome))
                self.recheck_results(RETAINED_RESULTS)
            return
        if isinstance(outcome, VulkanError | OutOfMemoryError) and (
            faults >= FATAL_FAULTS or _all_devices_failed(executor)
        ):
            self._tally.count(method, call.elements, "gave up")
            return
        self._tally.count(method, call.elements, None)
        failed = isinstance(outcome, BaseException)
        self._tally.report(
            "failed" if failed else "wrong", f"{where}, {faults} injected faults: {error}"
        )

    def _run_field_operations(self) -> None:
        self.activity = FIELD_OPERATIONS
        elements, error = self.field_operations.run_sequence(self._rng)
        self._tally.count(FIELD_OPERATIONS, elements, None if error else "right")
        if error:
            self._tally.report("wrong", error)


def _all_devices_failed(executor: GpuExecutor) -> bool:
    return all(device.failed for device in executor.stats().devices)
