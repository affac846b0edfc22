"""CallPreparer: how calls of one form are run, worked out at the first of them and remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from gpu_executor.calibration import Calibration
from gpu_executor.call import (
    REMEMBERED,
    AnyArray,
    Call,
    Signature,
    SignatureCache,
    check,
    describe_arrays,
)
from gpu_executor.device_array import DeviceArray
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.lru import remember
from gpu_executor.plan import Piece, Plan, Request, RunOptions, make_plan, plan_on_device
from gpu_executor.settings import Settings
from gpu_executor.vulkan.mapped_arrays import recycles
from gpu_executor.vulkan.ring import Step
from gpu_executor.vulkan.slot import SlotLayout
from gpu_executor.vulkan.slot_pool import SlotKey, SlotPool

LARGE_BYTES = 1 << 20
"""Input of a call that gains by a plan made for the device."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """All that calls of one form have in common, or the calls of a batch with the largest."""

    signature: Signature
    plan: Plan
    steps: tuple[Step, ...]
    slot_key: SlotKey
    on_device: bool
    """Whether arrays on the card take part."""
    recycles: bool
    """Whether its results are worth to lie in recycled memory."""


class CallPreparer:
    """Makes routes. They hold as long as the settings do and the device's figures."""

    def __init__(
        self,
        info: DeviceInfo,
        settings: Settings,
        slot_pool: SlotPool,
        measure: Callable[[], None],
    ) -> None:
        """`measure` is called before the first plan that the device's figures matter for."""
        self._info, self._settings, self._slot_pool = info, settings, slot_pool
        self._measure = measure
        self._figures: Calibration | None = None
        self.signatures = SignatureCache()
        self._single: dict[Hashable, PreparedCall] = {}
        self._batches: dict[Hashable, PreparedCall] = {}

    @property
    def figures(self) -> Calibration | None:
        """What the device was measured to do; None plans by fixed thresholds."""
        return self._figures

    @figures.setter
    def figures(self, figures: Calibration | None) -> None:
        self._figures = figures
        self._single.clear()
        self._batches.clear()

    def single(
        self,
        kernel: Kernel,
        arrays: Sequence[AnyArray],
        device_local: bool | None,
        *,
        keep: bool,
        profiled: bool,
    ) -> PreparedCall:
        """For a call on these arrays; `keep` leaves its results on the card."""
        try:
            key = (id(kernel), device_local, keep, profiled, *describe_arrays(arrays))
        except AttributeError:
            check(kernel, arrays)
            raise
        prepared = self._single.get(key)
        if prepared is None:
            signature = check(kernel, arrays)
            there = [isinstance(array, DeviceArray) for array in arrays]
            if keep and all(there):
                plan = plan_on_device(signature, self._info)
            else:
                request = Request.of(
                    signature, 1, RunOptions(device_local), recycled=recycles(signature)
                )
                plan = self._plan(request)
            on_device = keep or any(there)
            prepared = self.of(signature, plan, on_device=on_device, profiled=profiled)
            remember(self._single, key, prepared, REMEMBERED)
        return prepared

    def batch(
        self, calls: Sequence[Call], options: RunOptions, *, in_place: bool, profiled: bool
    ) -> PreparedCall:
        """For a batch of calls, none of them empty: the plan of the largest, for all of them."""
        largest = max([call.signature for call in calls], key=_count)
        key = (id(largest), len(calls), options, in_place, profiled)
        prepared = self._batches.get(key)
        if prepared is None:
            request = Request.of(
                largest, len(calls), options, in_place=in_place, recycled=recycles(largest)
            )
            # The route keeps the form, so that its id stays its own.
            prepared = self.of(largest, self._plan(request), on_device=False, profiled=profiled)
            remember(self._batches, key, prepared, REMEMBERED)
        return prepared

    def of(
        self, signature: Signature, plan: Plan, *, on_device: bool = False, profiled: bool = False
    ) -> PreparedCall:
        """The route for calls of a form by a plan."""
        if not signature.kernel.spirv:
            raise KernelError(f"kernel {signature.kernel.name!r} has no SPIR-V; it runs on WebGPU")
        layout = SlotLayout.of(plan, signature, profiled=profiled)
        slot_key = self._slot_pool.slot_key(layout)
        return PreparedCall(
            signature, plan, steps_of(plan, signature), slot_key, on_device, recycles(signature)
        )

    def by_plan(self, prepared: PreparedCall, signature: Signature, plan: Plan) -> PreparedCall:
        """A route for calls of that form, else like the one given."""
        profiled = prepared.slot_key.layout.profiled
        return self.of(signature, plan, on_device=prepared.on_device, profiled=profiled)

    def for_whole(self, prepared: PreparedCall, signature: Signature) -> PreparedCall:
        """For a call of another form among those of a batch of a kernel that is not cut."""
        if signature is prepared.signature:
            return prepared
        count = signature.count
        plan = dataclasses.replace(prepared.plan, count=count, chunk=count, capacity=count)
        return self.by_plan(prepared, signature, plan)

    def _plan(self, request: Request) -> Plan:
        if self._figures is None and (request.jobs > 1 or request.bytes_in >= LARGE_BYTES):
            self._measure()
        return make_plan(request, self._info, self._settings, self._figures)


def steps_of(plan: Plan, signature: Signature) -> tuple[Step, ...]:
    """A call's pieces, with the work-groups for each."""
    count, chunk = max(signature.count, 1), plan.chunk
    if count <= chunk:
        return ((Piece(0, count), plan.groups(count)),)
    pieces = [Piece(start, min(chunk, count - start)) for start in range(0, count, chunk)]
    return tuple((piece, plan.groups(piece.count)) for piece in pieces)


def _count(signature: Signature) -> int:
    return signature.count
