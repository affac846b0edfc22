"""Prepared calls: how calls of one signature run, decided at the first call and cached.

`CallPreparer` plans a call, splits it into chunks and finds its slot key. `BufferRangeFinder` finds
which arrays of a call the device can use where they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from gpu_executor.calls.call import (
    MAX_SIGNATURES,
    AnyArray,
    Call,
    Signature,
    SignatureCache,
    check,
    describe_arrays,
    make_shape_key,
)
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import remember
from gpu_executor.device_info import DeviceInfo
from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.plan import CallPlan, Request, RunOptions, make_plan, plan_on_device
from gpu_executor.plan.calibration import Calibration
from gpu_executor.plan.splitter import RangeGrid, split_call
from gpu_executor.settings import Settings
from gpu_executor.steps.call_binder import list_outputs_over_inputs
from gpu_executor.vulkan.mapped_arrays import (
    BufferRange,
    BufferRanges,
    Import,
    MappedArrays,
    RecycledResults,
    can_recycle_results,
    count_recycled_bytes,
    is_imported,
)
from gpu_executor.vulkan.slot_buffers import SlotLayout
from gpu_executor.vulkan.slot_pool import SlotKey, SlotPool

LARGE_BYTES = 1 << 20
"""Input bytes from which a single call gains from a calibrated plan."""


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """What calls of one signature have in common; for a batch, what its largest call needs."""

    signature: Signature
    plan: CallPlan
    chunks: tuple[RangeGrid, ...]
    slot_key: SlotKey
    recycles_results: bool
    """Whether the results are large enough for recycled memory."""
    nbytes: int
    """The bytes that a call needs at once: its slots and its results in recycled memory."""


class CallPreparer:
    """Prepares calls. Prepared calls are cached until the calibration changes."""

    def __init__(
        self,
        info: DeviceInfo,
        settings: Settings,
        slot_pool: SlotPool,
        calibrate: Callable[[], None],
    ) -> None:
        """`calibrate` is called before the first plan that a calibration would change."""
        self._info, self._settings, self._slot_pool = info, settings, slot_pool
        self._calibrate = calibrate
        self._calibration: Calibration | None = None
        self.signatures = SignatureCache()
        self._single: dict[Hashable, PreparedCall] = {}
        self._batches: dict[Hashable, PreparedCall] = {}
        self._on_device: dict[Signature, CallPlan] = {}
        """Plans of calls on device arrays. No calibration changes them."""

    @property
    def calibration(self) -> Calibration | None:
        """The measured performance of the device; if None, plans use fixed thresholds."""
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
        profiled: bool,
        out_shape: Any = None,
    ) -> PreparedCall:
        """Prepare a call on these arrays."""
        try:
            shape = None if out_shape is None else make_shape_key(out_shape)
            key = (id(kernel), device_local, profiled, shape, *describe_arrays(arrays))
        except AttributeError:
            check(kernel, arrays)
            raise
        prepared = self._single.get(key)
        if prepared is None:
            signature = check(kernel, arrays, out_shape=out_shape)
            request = Request.of(
                signature, 1, RunOptions(device_local), recycled=can_recycle_results(signature)
            )
            prepared = self.make(signature, self._make_plan(request), profiled=profiled)
            remember(self._single, key, prepared, MAX_SIGNATURES)
        return prepared

    def prepare_batch(
        self, calls: Sequence[Call], options: RunOptions, *, in_place: bool, profiled: bool
    ) -> PreparedCall:
        """Prepare a batch of calls, none of them empty: the plan of the largest call serves all."""
        largest = max([call.signature for call in calls], key=_get_count)
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
            # The prepared call keeps the signature alive, so that its id stays unique.
            prepared = self.make(largest, self._make_plan(request), profiled=profiled)
            remember(self._batches, key, prepared, MAX_SIGNATURES)
        return prepared

    def plan_on_device(self, signature: Signature) -> CallPlan:
        """Return the plan of calls of a signature on device arrays."""
        plan = self._on_device.get(signature)
        if plan is None:
            _check_has_spirv(signature.kernel)
            plan = plan_on_device(signature, self._info)
            remember(self._on_device, signature, plan, MAX_SIGNATURES)
        return plan

    def make(self, signature: Signature, plan: CallPlan, *, profiled: bool = False) -> PreparedCall:
        """Prepare calls of a signature under a given plan."""
        _check_has_spirv(signature.kernel)
        layout = SlotLayout.of(plan, signature, profiled=profiled)
        slot_key = self._slot_pool.get_key(layout)
        nbytes = plan.slots * slot_key.nbytes + count_recycled_bytes(signature)
        return PreparedCall(
            signature,
            plan,
            split_call(plan, signature, self._info),
            slot_key,
            can_recycle_results(signature),
            nbytes,
        )

    def replace_plan(
        self, prepared: PreparedCall, signature: Signature, plan: CallPlan
    ) -> PreparedCall:
        """Prepare calls of `signature` under `plan`, otherwise like `prepared`."""
        profiled = prepared.slot_key.layout.profiled
        return self.make(signature, plan, profiled=profiled)

    def prepare_whole(self, prepared: PreparedCall, signature: Signature) -> PreparedCall:
        """Prepare a call of another signature in a batch of a kernel that is not chunked."""
        if signature is prepared.signature:
            return prepared
        count = signature.count
        plan = dataclasses.replace(prepared.plan, count=count, chunk=count, capacity=count)
        return self.replace_plan(prepared, signature, plan)

    def _make_plan(self, request: Request) -> CallPlan:
        if self._calibration is None and (request.jobs > 1 or request.bytes_in >= LARGE_BYTES):
            self._calibrate()
        return make_plan(request, self._info, self._settings, self._calibration)


def _check_has_spirv(kernel: Kernel) -> None:
    if not kernel.spirv:
        raise KernelError(
            f"kernel {kernel.name!r} has only WGSL, which Vulkan cannot run; run it with "
            "gx.GpuExecutor('auto') or gx.GpuExecutor('webgpu'), or give it SPIR-V"
        )


def _get_count(signature: Signature) -> int:
    return signature.count


class BufferRangeFinder:
    """Finds the buffer ranges of mapped and imported arrays."""

    def __init__(self, info: DeviceInfo, mapped: MappedArrays, recycled: RecycledResults) -> None:
        self._alignment = info.limits.buffer_offset_alignment
        self._mapped, self._recycled = mapped, recycled

    def find_ranges(
        self, call: Call, plan: CallPlan, results: Sequence[BufferRange] = ()
    ) -> BufferRanges | None:
        """Return the ranges of a call's arrays; None if the host copies all of them.

        `results` are the ranges of recycled results, which are known already.
        """
        signature = call.signature
        # New results have no array yet.
        arrays = call.inputs if results else (*call.inputs, *call.outputs)
        found = self._mapped.find_all(arrays)
        found += results or [None] * (len(signature.passed) - len(found))
        call.imports = self._hold_imports(found)
        if signature.has_odd_sizes:
            self._drop_odd_sizes(found, signature)
        if plan.path == "host-visible":
            self._drop_unaligned(found, signature, plan)
            places = [None if each is None else each[:2] for each in found]
            for index in list_outputs_over_inputs(signature, places, call.in_place):
                found[len(signature.inputs) + index] = None
        return tuple(found) if found.count(None) < len(found) else None

    def _hold_imports(self, found: list[BufferRange | None]) -> list[Import]:
        """Return the imports that ranges lie in; drop ranges of imports that ended meanwhile."""
        held = []
        for index, buffer_range in enumerate(found):
            if buffer_range is not None and is_imported(buffer_range):
                made = self._mapped.get_import(buffer_range.serial)
                if made is None:
                    found[index] = None
                else:
                    held.append(made)
        return held

    def recycle_results(self, call: Call) -> Sequence[BufferRange]:
        """Place the results in recycled memory; return their ranges, or () if memory is short."""
        if call.results:
            return ()
        made = self._recycled.make(call.signature)
        if made:
            call.set_outputs([array for array, _ in made])
        return [buffer_range for _, buffer_range in made]

    def _drop_odd_sizes(self, found: list[BufferRange | None], signature: Signature) -> None:
        """Drop ranges whose size is not a multiple of four bytes; the host copies these arrays.

        Devices round the size of a binding up to four bytes when they check accesses, and fills
        write whole words, so a kernel could write behind such an array.
        """
        for index, operand in enumerate(signature.passed):
            buffer_range = found[index]
            if buffer_range is not None and not buffer_range.on_device and operand.nbytes % 4:
                found[index] = None

    def _drop_unaligned(
        self, found: list[BufferRange | None], signature: Signature, plan: CallPlan
    ) -> None:
        """Drop ranges that are not aligned for binding in every chunk; the host copies these."""
        several = plan.chunk < signature.count
        for index, (buffer_range, operand) in enumerate(zip(found, signature.passed, strict=True)):
            step = plan.chunk * operand.type.nbytes if several else 0
            if buffer_range is None or buffer_range.on_device:
                continue
            if buffer_range.offset % self._alignment or step % self._alignment:
                found[index] = None
