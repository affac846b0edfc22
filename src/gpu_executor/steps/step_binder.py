"""`StepBinder`: finds the memory of steps on device arrays.

It finds the buffer range of each array. Kernels and plain copies take contiguous arrays at aligned
offsets. Any other array is replaced by a temporary one: its elements are gathered before the kernel
runs, and scattered back afterwards if the kernel writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.call import Call, Operand, Signature
from gpu_executor.calls.dispatch import ArrayCopy, Dispatch, Step
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import remember
from gpu_executor.device_info import DeviceInfo
from gpu_executor.device_profiles import get_profile
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ClosedError,
    DeviceLacksError,
)
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels.catalogue import (
    COPY_UNIT_BYTES,
    STRIDED_COPY_AXES,
    copy_kernel,
    strided_copy_kernel,
)
from gpu_executor.plan import CallPlan, ElementRange
from gpu_executor.plan.splitter import DispatchParts, split_call, split_copy
from gpu_executor.steps.bound_steps import (
    MAX_UPDATE_BYTES,
    BoundStep,
    CallDispatch,
    Copy,
    Write,
)
from gpu_executor.steps.call_binder import (
    FILL_UNIT,
    BufferOffset,
    CallForms,
    HiddenBuffer,
    HiddenUse,
    bind_range,
    get_set_layout,
    list_outputs_over_inputs,
)
from gpu_executor.steps.status import STATUS_BYTES, StatusCheck, StatusWord, list_pending
from gpu_executor.steps.storage import MIN_BINDING_BYTES, DeviceStorage

MAX_DISPATCHES = 1024
"""Dispatches of calls that are remembered; a full dictionary is emptied."""
NO_STATUS_YET: HiddenBuffer[DeviceStorage] = HiddenBuffer(None, 0, 0, 0)
WORD = 1 << 32
STRIDED_COPY_WORK_GROUP = 128


@dataclass(slots=True, eq=False)
class CallStep:
    """A checked call of a kernel on device arrays, one for each argument in binding order.

    An in-out argument has the array of its result, which holds the argument's elements already.
    """

    call: Call
    arrays: tuple[DeviceArray, ...]
    plan: CallPlan


DeviceStep = Step | CallStep
StorageStep = BoundStep[DeviceStorage]


class ArrayMaker(Protocol):
    """The device whose steps are bound: it makes temporary arrays."""

    @property
    def info(self) -> DeviceInfo:
        """The device's name, kind and limits."""

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> DeviceArray:
        """An uninitialized array."""


class CopyRules(NamedTuple):
    """What copies between buffers a device makes without a kernel."""

    unit: int = 1
    """Offsets and sizes are multiples of so many bytes."""
    within_buffers: bool = True
    """Whether the source and the target may be in one buffer."""
    words_only: bool = False
    """Whether kernels have no integers smaller than words in buffers."""


class _BoundOperand(NamedTuple):
    """An argument of a call, with the array that the kernel binds."""

    operand: Operand
    array: DeviceArray
    storage: DeviceStorage


class StepBinder:
    """Binds the steps of one device."""

    def __init__(
        self,
        device: ArrayMaker,
        make_status_word: Callable[[], StatusWord],
        note_call: Callable[[int], None],
        copies: CopyRules,
        forms: CallForms,
    ) -> None:
        """`note_call` gets the bytes of the arrays of each dispatch, and of all steps that are
        bound together: a transform of several passes needs all of its arrays at once."""
        self._device, self._info = device, device.info
        self._make_status_word = make_status_word
        self._copy_rules, self._forms = copies, forms
        self._note_call = note_call
        self.bytes_bound = 0
        """The bytes that the steps bound last need at once."""
        self._alignment = device.info.limits.buffer_offset_alignment
        self._kernel_copy_bytes = get_profile(device.info).kernel_copy_bytes
        self._max_binding_bytes = device.info.limits.max_storage_buffer_range
        self._dispatches: dict[Hashable, tuple[tuple[ElementRange, CallDispatch], ...]] = {}
        """The dispatches of earlier calls; a signature has one plan on a device."""
        self._simple: dict[Hashable, CallDispatch] = {}
        """Those of simple calls (`_is_simple`)."""
        self._copies: dict[Hashable, CallDispatch] = {}
        """Those of strided copies."""

    def bind(self, steps: Sequence[DeviceStep], *, recorded: bool = False) -> list[StorageStep]:
        """Return the steps with the buffer ranges of their arrays.

        Only `recorded` steps may read results of a graph that has not run.
        """
        bound: list[StorageStep] = []
        for step in steps:
            if isinstance(step, Dispatch):
                self._bind_dispatch(step, bound)
            elif isinstance(step, CallStep):
                self._bind_call(step, bound)
            else:
                self._bind_copy(step, bound)
        if len(bound) > 1:
            self.bytes_bound = _count_bound_bytes(bound)
            self._note_call(self.bytes_bound)
        if not recorded:
            for each in bound:
                for storage in each.memory:
                    if storage.is_pending:
                        storage.check_computed()
        return bound

    def find_storage(self, array: DeviceArray) -> DeviceStorage:
        """Return the storage of an array of this device; refuses other arrays."""
        storage = array.storage
        if not isinstance(storage, DeviceStorage):
            raise ArgumentTypeError(
                "the array is on a device of another kind of backend; fetch it with numpy()"
            )
        if storage.device is not self._device:
            if storage.device.closed:
                raise ClosedError(
                    "the array was on a device that is closed; its elements are gone with it"
                )
            raise ArgumentTypeError(
                f"the array is on {storage.device.info.name} as another backend opened it; copy it "
                "with array.copy_to(gpu)"
            )
        return storage

    def _find_whole_storage(self, array: DeviceArray) -> DeviceStorage | None:
        """Return the storage of an array that fills it and that a kernel can bind, else None."""
        storage: Any = array.storage
        if (
            storage.device is self._device
            and array.nbytes == storage.nbytes <= self._max_binding_bytes
            and array.is_contiguous
        ):
            found: DeviceStorage = storage
            return found
        return None

    # --- dispatches of algorithms ---

    def _bind_dispatch(self, dispatch: Dispatch, bound: list[StorageStep]) -> None:
        storages: list[DeviceStorage] = []
        bindings: list[Any] = []
        written_back: list[ArrayCopy] = []
        checks: tuple[StatusCheck, ...] = ()
        inputs, total = dispatch.kernel.inputs, 0
        for array in dispatch.arrays:
            total += array.nbytes
            storage = self._find_whole_storage(array)
            if storage is not None:  # so it is for nearly all arrays
                bindings += storage.whole_range
            else:
                if dispatch.elementwise and self._has_wide_array(dispatch):
                    self._bind_parts(dispatch, bound)
                    return
                writes = len(storages) >= inputs
                array = self._make_bindable(  # noqa: PLW2901
                    dispatch.kernel, array, bound, written_back, reads=not writes, writes=writes
                )
                storage = self.find_storage(array)
                nbytes = max(array.nbytes, MIN_BINDING_BYTES)
                bindings += (storage.handle, storage.offset + array.offset, nbytes)
            if storage.checks:
                checks += storage.checks
            storages.append(storage)
        self.bytes_bound = total
        self._note_call(total)
        check = None
        if dispatch.make_error is not None:
            check = StatusCheck(self._make_status_word(), dispatch.make_error)
            word = _bind_status(check)
            bindings += (word.handle, word.offset, word.nbytes)
            for array in dispatch.guarded:
                storage = self.find_storage(array)
                storage.checks = (*storage.checks, check)
        if dispatch.overwrites:
            read = [each for storage in storages[:inputs] for each in storage.checks]
            for array, storage in zip(dispatch.arrays[inputs:], storages[inputs:], strict=True):
                _set_checks(storage, array, read)
        elif checks:
            for storage in storages[inputs:]:  # a dispatch may write only a part of its output
                storage.checks = list_pending([*storage.checks, *checks])
        bound.append(BoundStep(dispatch, storages, inputs, bindings, check))
        for step in written_back:
            self._bind_copy(step, bound)

    def _has_wide_array(self, dispatch: Dispatch) -> bool:
        return any(array.nbytes > self._max_binding_bytes for array in dispatch.arrays)

    def _bind_parts(self, dispatch: Dispatch, bound: list[StorageStep]) -> None:
        """Bind an element-wise dispatch on arrays larger than a binding, in parts."""
        kernel = dispatch.kernel
        written_back: list[ArrayCopy] = []
        parts = DispatchParts(dispatch, self._max_binding_bytes, self._alignment)
        if not parts.length:
            nbytes = max(array.nbytes for array in dispatch.arrays)
            raise DeviceLacksError(
                f"{self._describe_excess(kernel, nbytes)}, and no part that fits ends where "
                f"shorter operands repeat and at a multiple of {parts.alignment} bytes"
            )
        arrays = [
            self._make_bindable(
                kernel,
                array,
                bound,
                written_back,
                reads=number < kernel.inputs,
                writes=number >= kernel.inputs,
                limit=parts.get_limit(number),
            )
            for number, array in enumerate(dispatch.arrays)
        ]
        for part in parts.make(arrays):
            self._bind_dispatch(part, bound)
        for step in written_back:
            self._bind_copy(step, bound)

    # --- calls ---

    def _bind_call(self, step: CallStep, bound: list[StorageStep]) -> None:
        """Bind a call in parts that the device can bind, each as one dispatch."""
        call, signature, kernel = step.call, step.call.signature, step.call.signature.kernel
        apart = self._forms.keeps_inputs_apart(kernel)
        may_bind = not call.in_place or (kernel.always_in_place and not apart)
        if self._simple and may_bind and self._bind_simple_call(step, bound):
            return
        written_back: list[ArrayCopy] = []
        operands = self._bind_operands(step, bound, written_back)
        arguments = [(each.operand, _locate(each.storage, each.array.offset)) for each in operands]
        hidden = self._make_hidden(call, bound) if kernel.has_hidden_buffers else {}
        checks: list[StatusCheck] = []
        for part, dispatch in self._find_dispatches(step):
            check = None
            if kernel.status:
                check = StatusCheck.of_range(self._make_status_word(), kernel, part.start)
                hidden["status"] = _bind_status(check)
                checks.append(check)
            bound += bind_range(dispatch, part, arguments, hidden, signature.scratch_bytes, check)
        for each in operands:
            if each.operand.is_input and each.storage.checks:
                checks += each.storage.checks
        for each in operands:
            if each.operand.is_output and (checks or each.storage.checks):
                _set_checks(each.storage, each.array, checks)
        for copy in written_back:
            self._bind_copy(copy, bound)

    def _bind_simple_call(self, step: CallStep, bound: list[StorageStep]) -> bool:
        """Bind a simple call that was bound before; False if this one is not simple.

        Nearly all calls are, and binding them takes a third of the time.
        """
        call = step.call
        values = call.values
        dispatch = self._simple.get((call.signature, values.push, values.given_count, call.grid))
        if dispatch is None:
            return False
        storages: list[DeviceStorage] = []
        bindings: list[Any] = []
        for array in step.arrays:
            storage = self._find_whole_storage(array)
            if storage is None or storage.checks:
                return False
            storages.append(storage)
            bindings += storage.whole_range
        bound.append(BoundStep(dispatch, storages, len(call.signature.inputs), bindings))
        return True

    def _bind_operands(
        self, step: CallStep, bound: list[StorageStep], written_back: list[ArrayCopy]
    ) -> list[_BoundOperand]:
        """Find the storages of a call's arrays; temporary ones are made where necessary."""
        signature, chunk = step.call.signature, step.plan.chunk
        apart: list[int] = []
        if self._forms.keeps_inputs_apart(signature.kernel):
            apart = _list_outputs_in_input_buffers(step)
        elif step.call.in_place:
            apart = _list_outputs_apart(step)
        operands: list[_BoundOperand] = []
        total = output = 0
        for array, operand in zip(step.arrays, signature.operands, strict=True):
            total += array.nbytes
            if operand.is_output:
                if output in apart:
                    made = self._device.empty(array.shape, array.dtype)
                    if operand.is_input:
                        self._bind_copy(ArrayCopy(array, made), bound)
                    written_back.append(ArrayCopy(made, array))
                    array = made  # noqa: PLW2901
                output += 1
            storage = self._find_whole_storage(array)
            if storage is None:
                array = self._make_bindable(  # noqa: PLW2901
                    signature.kernel,
                    array,
                    bound,
                    written_back,
                    reads=operand.is_input,
                    writes=operand.is_output,
                    limit=chunk * operand.type.nbytes,
                )
                storage = self.find_storage(array)
            operands.append(_BoundOperand(operand, array, storage))
        self.bytes_bound = total
        self._note_call(total)
        return operands

    def _find_dispatches(self, step: CallStep) -> tuple[tuple[ElementRange, CallDispatch], ...]:
        """Return the parts of a call with their dispatches, made at the first such call."""
        call, plan, signature = step.call, step.plan, step.call.signature
        key = signature, call.values.push, call.values.given_count, call.grid
        found = self._dispatches.get(key)
        if found is None:
            kernel, words, values = signature.kernel, signature.shape_words, call.values
            found = tuple(
                (
                    part,
                    CallDispatch(
                        kernel,
                        plan.work_group,
                        plan.per_invocation,
                        self._forms.compose_parameters(kernel, part.count, words, values),
                        grid,
                        get_set_layout(kernel),
                    ),
                )
                for part, grid in split_call(plan, signature, self._info, call.grid)
            )
            remember(self._dispatches, key, found, MAX_DISPATCHES)
            if len(found) == 1 and _is_simple(signature):
                remember(self._simple, key, found[0][1], MAX_DISPATCHES)
        return found

    def _make_hidden(
        self, call: Call, bound: list[StorageStep]
    ) -> dict[HiddenUse, HiddenBuffer[DeviceStorage]]:
        """Make the scratch buffer and the uniform buffer of a call, if it has them. Its parts have
        one scratch buffer, which each of them fills, and status words of their own."""
        kernel, values = call.signature.kernel, call.values
        hidden: dict[HiddenUse, HiddenBuffer[DeviceStorage]] = {}
        sizes = self._forms.list_hidden_buffers(kernel, call.signature.scratch_bytes)
        for use, nbytes in sizes.items():
            if use == "status":
                hidden[use] = NO_STATUS_YET  # each part has another one, in this order
                continue
            storage = self.find_storage(self._device.empty((nbytes,), np.dtype(np.uint8)))
            hidden[use] = HiddenBuffer(*_locate(storage)[:3], nbytes, storage)
            if use == "uniform":
                padded = values.uniform + bytes(-len(values.uniform) % FILL_UNIT)
                for at in range(0, len(padded), MAX_UPDATE_BYTES):
                    part, offset = padded[at : at + MAX_UPDATE_BYTES], storage.offset + at
                    write = Write(storage.buffer, offset, part)
                    bound.append(BoundStep(write, (storage,), 0))
        return hidden

    def _make_bindable(
        self,
        kernel: Kernel,
        array: DeviceArray,
        bound: list[StorageStep],
        written_back: list[ArrayCopy],
        *,
        reads: bool,
        writes: bool,
        limit: int | None = None,
    ) -> DeviceArray:
        """Return the array if a kernel can bind it, else a temporary one.

        Devices round the size of a binding up to four bytes when they check accesses, so a kernel
        could write behind a part of an array whose size is not a multiple of four. `limit` is the
        largest size of a part.
        """
        nbytes = array.nbytes if limit is None else min(limit, array.nbytes)
        if nbytes > self._max_binding_bytes:
            raise DeviceLacksError(self._describe_excess(kernel, nbytes))
        storage = self.find_storage(array)
        whole_words = not array.nbytes % FILL_UNIT or array.offset + array.nbytes >= storage.nbytes
        if array.is_contiguous and not array.offset % self._alignment and whole_words:
            return array
        made = self._device.empty(array.shape, array.dtype)
        if reads:
            self._bind_copy(ArrayCopy(array, made), bound)
        if writes:
            written_back.append(ArrayCopy(made, array))
        return made

    def _describe_excess(self, kernel: Kernel, nbytes: int) -> str:
        return (
            f"{kernel.name}: an array has {nbytes:,} bytes; {self._info.name} binds "
            f"{self._max_binding_bytes:,} bytes at most"
        )

    # --- copies ---

    def _bind_copy(self, step: ArrayCopy, bound: list[StorageStep]) -> None:
        source, target = step.source, step.target
        if source.shape != target.shape or source.dtype != target.dtype:
            raise ArgumentShapeError(
                f"an array of {source.dtype} and shape {source.shape} cannot be copied to one of "
                f"{target.dtype} and shape {target.shape}"
            )
        storages = [self.find_storage(each) for each in (source, target)]
        if storages[0].checks or storages[1].checks:
            _set_checks(storages[1], target, storages[0].checks)
        if not source.nbytes:
            return
        if not (source.is_contiguous and target.is_contiguous and self._may_copy(step, storages)):
            parts: Iterable[ArrayCopy] = [step]
            if any(each.nbytes > self._max_binding_bytes for each in storages):
                # A binding begins at a multiple of the alignment, and ends at one of four bytes.
                most = self._max_binding_bytes - max(self._alignment, FILL_UNIT) - FILL_UNIT
                parts = split_copy(step, most)
            for part in parts:
                self._bind_strided_copy(part, storages, bound)
        elif self._copies_by_kernel(step, storages):
            units = source.nbytes // COPY_UNIT_BYTES
            bindings = _list_bindings(storages, (source, target))
            dispatch = Dispatch(copy_kernel(), (source, target), units, grid_stride=True)
            bound.append(BoundStep(dispatch, storages, 1, bindings))
        else:
            start, end = storages
            copy = Copy(
                start.buffer,
                start.offset + source.offset,
                end.buffer,
                end.offset + target.offset,
                source.nbytes,
            )
            bound.append(BoundStep(copy, storages, 1))

    def _may_copy(self, step: ArrayCopy, storages: Sequence[DeviceStorage]) -> bool:
        """Whether the device copies contiguous arrays without a kernel."""
        unit, within, _ = self._copy_rules
        if not within and storages[0].buffer is storages[1].buffer:
            return False
        target, whole = storages[1], step.target.nbytes == storages[1].nbytes
        return (
            not (storages[0].offset + step.source.offset) % unit
            and not (target.offset + step.target.offset) % unit
            and (whole or not step.target.nbytes % unit)
        )

    def _copies_by_kernel(self, step: ArrayCopy, storages: Sequence[DeviceStorage]) -> bool:
        """Whether a copy is large, and both arrays can be bound and consist of whole units."""
        nbytes = step.source.nbytes
        offsets = [
            storage.offset + array.offset
            for storage, array in zip(storages, (step.source, step.target), strict=True)
        ]
        return (
            self._info.kind != "cpu"
            and self._kernel_copy_bytes <= nbytes <= self._max_binding_bytes
            and nbytes % COPY_UNIT_BYTES == 0
            and not any(offset % COPY_UNIT_BYTES or offset % self._alignment for offset in offsets)
        )

    def _bind_strided_copy(
        self, step: ArrayCopy, storages: Sequence[DeviceStorage], bound: list[StorageStep]
    ) -> None:
        """Bind one dispatch for each combination of the axes that the kernel has no room for."""
        both = step.source, step.target
        unit = min(step.source.dtype.itemsize & -step.source.dtype.itemsize, 4)
        kernel = strided_copy_kernel(unit, words_only=self._copy_rules.words_only)
        axes = _merge_axes(step, unit)
        outer, inner = axes[:-STRIDED_COPY_AXES], axes[-STRIDED_COPY_AXES:]
        inner = [(1, 0, 0)] * (STRIDED_COPY_AXES - len(inner)) + inner
        lengths, *strides = zip(*inner, strict=True)
        count = int(np.prod(lengths, dtype=np.int64))
        for index in np.ndindex(*(length for length, _, _ in outer)):
            bindings, starts = [], []
            for number, (storage, array) in enumerate(zip(storages, both, strict=True)):
                skipped = sum(at * axis[1 + number] for at, axis in zip(index, outer, strict=True))
                first = storage.offset + array.offset + skipped
                low = first + _sum_steps(lengths, strides[number], negative=True)
                high = first + _sum_steps(lengths, strides[number], negative=False) + unit
                begin = low - low % max(self._alignment, unit)
                nbytes = -(-(high - begin) // FILL_UNIT) * FILL_UNIT
                bindings += [storage.handle, begin, nbytes]
                starts.append((first - begin) // unit)
            in_units = [stride // unit % WORD for each in strides for stride in each]
            push = struct.pack("<15I", count, *starts, *lengths, *in_units)
            dispatch = self._find_copy_dispatch(kernel, count, push)
            bound.append(BoundStep(dispatch, storages, 1, bindings))

    def _find_copy_dispatch(self, kernel: Kernel, count: int, push: bytes) -> CallDispatch:
        """Return the dispatch of a strided copy: always the same one, since recorded commands are
        found by it."""
        key = kernel, push
        dispatch = self._copies.get(key)
        if dispatch is None:
            most = self._info.limits.max_work_group_count[0]
            groups = min(-(-count // STRIDED_COPY_WORK_GROUP), most)
            dispatch = CallDispatch(kernel, STRIDED_COPY_WORK_GROUP, 1, push, (groups, 1, 1), 2)
            remember(self._copies, key, dispatch, MAX_DISPATCHES)
        return dispatch


def _is_simple(signature: Signature) -> bool:
    """Whether calls of one part need nothing but a dispatch on their arrays."""
    kernel = signature.kernel
    return (
        kernel.split == "elements"
        and signature.reads_then_writes
        and not (kernel.has_init or kernel.status or kernel.scratch or kernel.interface.uniform)
        and all(operand.nbytes >= MIN_BINDING_BYTES for operand in signature.operands)
    )


def _merge_axes(step: ArrayCopy, unit: int) -> list[tuple[int, int, int]]:
    """Return axes of (length, stride of the source, stride of the target), in bytes and as few as
    possible. The innermost axis runs over the units of an element.
    """
    source, target = step.source, step.target
    given = list(zip(source.shape, source.strides, target.strides, strict=True))
    given.append((source.dtype.itemsize // unit, unit, unit))
    axes: list[tuple[int, int, int]] = []
    for length, one, other in given:
        if length == 1:
            continue
        if axes and axes[-1][1] == one * length and axes[-1][2] == other * length:
            axes[-1] = axes[-1][0] * length, one, other
        else:
            axes.append((length, one, other))
    return axes


def _sum_steps(lengths: Sequence[int], strides: Sequence[int], *, negative: bool) -> int:
    """Return the bytes from the first element to the lowest one, or to the highest one."""
    steps = [(n - 1) * stride for n, stride in zip(lengths, strides, strict=True)]
    return sum(step for step in steps if (step < 0) == negative)


def _list_bindings(storages: Sequence[DeviceStorage], arrays: Sequence[DeviceArray]) -> list[Any]:
    bindings: list[Any] = []
    for storage, array in zip(storages, arrays, strict=True):
        bindings += (storage.handle, storage.offset + array.offset, array.nbytes)
    return bindings


def _set_checks(
    storage: DeviceStorage, written: DeviceArray, checks: Sequence[StatusCheck]
) -> None:
    """Let what is written to a storage depend on checks that have not passed yet.

    What is not overwritten depends on the checks that it had.
    """
    whole = written.is_contiguous and written.nbytes == storage.nbytes
    storage.checks = list_pending([*(() if whole else storage.checks), *checks])


def _list_outputs_apart(step: CallStep) -> list[int]:
    """The outputs that need memory of their own because their array is that of an input. Only the
    very same view of an input may be an output, so the two begin at the same offset."""
    signature = step.call.signature
    pairs = list(zip(step.arrays, signature.operands, strict=True))
    places = [(array.storage, array.offset) for array, operand in pairs if operand.is_input]
    places += [(array.storage, array.offset) for array, operand in pairs if operand.is_output]
    return list_outputs_over_inputs(signature, places, in_place=True)


def _list_outputs_in_input_buffers(step: CallStep) -> list[int]:
    """The outputs that are in the buffer of an input."""
    pairs = list(zip(step.arrays, step.call.signature.operands, strict=True))
    storages = [array.storage for array, operand in pairs if not operand.is_output]
    outputs = [array for array, operand in pairs if operand.is_output]
    return [index for index, array in enumerate(outputs) if array.storage in storages]


def _locate(storage: DeviceStorage, offset: int = 0) -> BufferOffset[DeviceStorage]:
    return BufferOffset(storage.buffer, storage.handle, storage.offset + offset, storage)


def _bind_status(check: StatusCheck) -> HiddenBuffer[DeviceStorage]:
    word = check.word
    return HiddenBuffer(word.buffer, word.handle, word.offset, STATUS_BYTES)


def _count_bound_bytes(steps: Sequence[StorageStep]) -> int:
    """The bytes of the distinct ranges that dispatches bind."""
    ranges: dict[tuple[int, int], int] = {}
    for step in steps:
        values = iter(step.bindings)
        for buffer, offset, nbytes in zip(values, values, values, strict=True):
            ranges[buffer, offset] = max(nbytes, ranges.get((buffer, offset), 0))
    return sum(ranges.values())
