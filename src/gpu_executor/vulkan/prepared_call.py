"""CallPreparer: how calls of one form are run, worked out at the first of them and remembered."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

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
from gpu_executor.vulkan.device_memory import DeviceMemory
from gpu_executor.vulkan.mapped_arrays import (
    BufferRange,
    BufferRanges,
    MappedArrays,
    RecycledResults,
    can_recycle_results,
)
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
    recycles_results: bool
    """Whether its results are worth to lie in recycled memory."""


class CallPreparer:
    """Makes routes. They hold as long as the settings do and the device's figures."""

    def __init__(
        self,
        info: DeviceInfo,
        settings: Settings,
        slot_pool: SlotPool,
        calibrate: Callable[[], None],
    ) -> None:
        """`calibrate` is called before the first plan that the device's calibration matter for."""
        self._info, self._settings, self._slot_pool = info, settings, slot_pool
        self._calibrate = calibrate
        self._calibration: Calibration | None = None
        self.signatures = SignatureCache()
        self._single: dict[Hashable, PreparedCall] = {}
        self._batches: dict[Hashable, PreparedCall] = {}

    @property
    def calibration(self) -> Calibration | None:
        """What the device was measured to do; None plans by fixed thresholds."""
        return self._calibration

    @calibration.setter
    def calibration(self, calibration: Calibration | None) -> None:
        self._calibration = calibration
        self._single.clear()
        self._batches.clear()

    def prepare_single(
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
                    signature, 1, RunOptions(device_local), recycled=can_recycle_results(signature)
                )
                plan = self._make_plan(request)
            on_device = keep or any(there)
            prepared = self.make(signature, plan, on_device=on_device, profiled=profiled)
            remember(self._single, key, prepared, REMEMBERED)
        return prepared

    def prepare_batch(
        self, calls: Sequence[Call], options: RunOptions, *, in_place: bool, profiled: bool
    ) -> PreparedCall:
        """For a batch of calls, none of them empty: the plan of the largest, for all of them."""
        largest = max([call.signature for call in calls], key=_count)
        key = (id(largest), len(calls), options, in_place, profiled)
        prepared = self._batches.get(key)
        if prepared is None:
            request = Request.of(
                largest,
                len(calls),
                options,
                in_place=in_place,
                recycled=can_recycle_results(largest),
            )
            # The route keeps the form, so that its id stays its own.
            prepared = self.make(
                largest, self._make_plan(request), on_device=False, profiled=profiled
            )
            remember(self._batches, key, prepared, REMEMBERED)
        return prepared

    def make(
        self, signature: Signature, plan: Plan, *, on_device: bool = False, profiled: bool = False
    ) -> PreparedCall:
        """The route for calls of a form by a plan."""
        if not signature.kernel.spirv:
            raise KernelError(f"kernel {signature.kernel.name!r} has no SPIR-V; it runs on WebGPU")
        layout = SlotLayout.of(plan, signature, profiled=profiled)
        slot_key = self._slot_pool.get_key(layout)
        return PreparedCall(
            signature,
            plan,
            make_steps(plan, signature),
            slot_key,
            on_device,
            can_recycle_results(signature),
        )

    def replace_plan(
        self, prepared: PreparedCall, signature: Signature, plan: Plan
    ) -> PreparedCall:
        """A route for calls of that form, else like the one given."""
        profiled = prepared.slot_key.layout.profiled
        return self.make(signature, plan, on_device=prepared.on_device, profiled=profiled)

    def prepare_whole(self, prepared: PreparedCall, signature: Signature) -> PreparedCall:
        """For a call of another form among those of a batch of a kernel that is not cut."""
        if signature is prepared.signature:
            return prepared
        count = signature.count
        plan = dataclasses.replace(prepared.plan, count=count, chunk=count, capacity=count)
        return self.replace_plan(prepared, signature, plan)

    def _make_plan(self, request: Request) -> Plan:
        if self._calibration is None and (request.jobs > 1 or request.bytes_in >= LARGE_BYTES):
            self._calibrate()
        return make_plan(request, self._info, self._settings, self._calibration)


def make_steps(plan: Plan, signature: Signature) -> tuple[Step, ...]:
    """A call's pieces, with the work-groups for each."""
    count, chunk = max(signature.count, 1), plan.chunk
    if count <= chunk:
        return ((Piece(0, count), plan.groups(count)),)
    pieces = [Piece(start, min(chunk, count - start)) for start in range(0, count, chunk)]
    return tuple((piece, plan.groups(piece.count)) for piece in pieces)


def _count(signature: Signature) -> int:
    return signature.count


class BufferRangeFinder:
    """Finds the places of arrays in mapped and imported memory and on the card."""

    def __init__(
        self,
        info: DeviceInfo,
        mapped: MappedArrays,
        device_memory: DeviceMemory,
        recycled: RecycledResults,
    ) -> None:
        self._alignment = info.limits.buffer_offset_alignment
        self._mapped, self._device_memory, self._recycled = mapped, device_memory, recycled

    def find(self, array: Any) -> BufferRange | None:
        """Where the device reaches an array, if it does."""
        if isinstance(array, DeviceArray):
            return self._device_memory.find_range(array)
        return self._mapped.find(array)

    def find_ranges(
        self, call: Call, plan: Plan, results: Sequence[BufferRange] = ()
    ) -> BufferRanges | None:
        """The places of a call's arrays; None where it has none.

        Those of results that were recycled are known already.
        """
        inputs = call.signature.kernel.inputs
        found = [self.find(array) for array in call.inputs]
        if results:
            found += results
        elif call.outputs:
            found += [self.find(array) for array in call.outputs]
        else:
            found += [None] * call.signature.kernel.outputs
        if plan.path == "host-visible":
            self._drop_unaligned(found, call.signature, plan)
            if call.signature.kernel.split == "whole":
                _drop_overwritten_inputs(found, inputs)
        return tuple(found) if any(buffer_range is not None for buffer_range in found) else None

    def recycle_results(self, call: Call) -> Sequence[BufferRange]:
        """Let results lie in recycled memory; returns where, or nothing where they do not."""
        if call.results:
            return ()
        made = self._recycled.make(call.signature)
        if made:
            call.set_outputs([array for array, _ in made])
        return [buffer_range for _, buffer_range in made]

    def _drop_unaligned(
        self, found: list[BufferRange | None], signature: Signature, plan: Plan
    ) -> None:
        """What a kernel binds must be aligned, in every piece."""
        several = plan.chunk < signature.count
        for index, (buffer_range, operand) in enumerate(
            zip(found, signature.operands, strict=True)
        ):
            step = plan.chunk * operand.type.nbytes if several else 0
            if buffer_range is None or buffer_range.on_device:
                continue
            if buffer_range.offset % self._alignment or step % self._alignment:
                found[index] = None


def _drop_overwritten_inputs(found: list[BufferRange | None], inputs: int) -> None:
    """A kernel that reads anything for any result must not write over what it reads."""
    read = {buffer_range[:2] for buffer_range in found[:inputs] if buffer_range is not None}
    for index, buffer_range in enumerate(found[inputs:], inputs):
        if buffer_range is not None and buffer_range[:2] in read:
            found[index] = None
