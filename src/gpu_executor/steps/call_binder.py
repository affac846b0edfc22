"""The binder: what a dispatch of a call binds and what happens right before it.

A range of a call's elements becomes bound steps: fills of the outputs that have initial values and
of the scratch buffer, then a dispatch with its push constants, its work-groups and the buffer range
of every binding. Slots and the command stream say where the arrays and the hidden buffers are; what
a kernel declares is put into effect here.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Generic, Literal, NamedTuple

from gpu_executor.calls.call import Operand, Signature
from gpu_executor.kernel import Grid, Kernel
from gpu_executor.kernel.parameters import ParameterValues
from gpu_executor.plan import ElementRange
from gpu_executor.steps.bound_steps import BoundStep, CallDispatch, Fill, Memory, SetLayout
from gpu_executor.steps.status import STATUS_BYTES, StatusCheck
from gpu_executor.steps.storage import MIN_BINDING_BYTES

FILL_UNIT = 4
"""vkCmdFillBuffer writes multiples of this many bytes."""
ZERO = b"\0\0\0\0"

HiddenUse = Literal["scratch", "status", "uniform", "push"]
"""What a kernel binds behind its arguments: the scratch buffer, the status word, the uniform buffer
of its parameters, and its push constants where these are in a uniform buffer."""


class BufferOffset(NamedTuple, Generic[Memory]):
    """Where the elements of an array begin."""

    buffer: Any
    handle: Any
    """What a binding names the buffer by."""
    offset: int
    memory: Memory


class HiddenBuffer(NamedTuple, Generic[Memory]):
    """What a kernel binds behind its arguments."""

    buffer: Any
    handle: Any
    """What a binding names the buffer by."""
    offset: int
    nbytes: int
    memory: Memory | None = None
    """None if no step waits for another because of it: a status word, and what the host writes
    before the steps are submitted."""


def list_hidden_buffers(
    kernel: Kernel, scratch_bytes: int, params_binding: int | None = None
) -> dict[HiddenUse, int]:
    """Return the bytes of each hidden buffer of a kernel, in the order of `get_set_layout`.

    `params_binding` is the binding of its push constants, if these are in a uniform buffer.
    """
    sizes: dict[HiddenUse, int] = {}
    if kernel.scratch is not None:
        sizes["scratch"] = max(scratch_bytes, FILL_UNIT)
    if kernel.status:
        sizes["status"] = STATUS_BYTES
    if kernel.interface.uniform is not None:
        sizes["uniform"] = kernel.interface.uniform.nbytes
    if params_binding is not None:
        sizes["push"] = kernel.push_bytes
    return sizes


def get_set_layout(kernel: Kernel, params_binding: int | None = None) -> SetLayout:
    """Return the layout of a kernel's descriptor set: its arguments, then its hidden buffers."""
    uniform = kernel.interface.uniform
    uniforms: tuple[int, ...] = () if uniform is None else (uniform.binding,)
    if params_binding is not None:
        uniforms += (params_binding,)
    return tuple(kernel.interface.bindings), uniforms


def make_dispatch(
    kernel: Kernel,
    sizes: tuple[int, int],
    count: int,
    grid: Grid,
    shape_words: bytes,
    values: ParameterValues,
    params_binding: int | None = None,
) -> CallDispatch:
    """Make the dispatch of `count` elements of a call. `sizes` are the size of a work-group and
    the elements of an invocation.

    Push constants in a uniform buffer are not part of the dispatch.
    """
    push = b"" if params_binding is not None else kernel.compose_push(count, shape_words, values)
    return CallDispatch(kernel, *sizes, push, grid, get_set_layout(kernel, params_binding))


class CallForms:
    """How a device binds the calls of a kernel: in the form of its SPIR-V. A device that runs other
    code for some kernels has forms of its own."""

    def compose_parameters(
        self, kernel: Kernel, count: int, shape_words: bytes, values: ParameterValues
    ) -> bytes:
        """Return the parameters of a dispatch of `count` elements."""
        return kernel.compose_push(count, shape_words, values)

    def list_hidden_buffers(self, kernel: Kernel, scratch_bytes: int) -> dict[HiddenUse, int]:
        """Return the bytes of each buffer behind the arguments, in order."""
        return list_hidden_buffers(kernel, scratch_bytes)

    def keeps_inputs_apart(self, kernel: Kernel) -> bool:
        """Whether no buffer may be bound as an input and as an output."""
        return False


def bind_range(
    dispatch: CallDispatch,
    elements: ElementRange,
    arguments: Sequence[tuple[Operand, BufferOffset[Memory]]],
    hidden: Mapping[HiddenUse, HiddenBuffer[Memory]],
    scratch_bytes: int,
    check: StatusCheck | None = None,
) -> list[BoundStep[Memory]]:
    """Return the steps for a range of elements: fills, then the dispatch.

    `arguments` are the operands of the call with the offsets of their first elements. Exactly the
    range is bound, so that `length()` in the code is its number of elements.
    """
    kernel = dispatch.kernel
    whole = kernel.split == "whole"
    steps: list[BoundStep[Memory]] = []
    read: list[Memory] = []
    written: list[Memory] = []
    bindings: list[Any] = []
    init = iter(kernel.init)
    for operand, at in arguments:
        size, memory = operand.type.nbytes, at.memory
        offset = at.offset if whole else at.offset + elements.start * size
        nbytes = operand.nbytes if whole else elements.count * size
        bindings += (at.handle, offset, nbytes or MIN_BINDING_BYTES)
        (written if operand.is_output else read).append(memory)
        pattern = None if operand.is_input else next(init)
        if pattern is not None and nbytes:
            filled = -(-nbytes // FILL_UNIT) * FILL_UNIT
            steps.append(BoundStep(Fill(at.buffer, offset, filled, pattern), (memory,), 0))
    for use, each in hidden.items():
        bindings += (each.handle, each.offset, each.nbytes)
        if each.memory is None:
            continue
        (written if use == "scratch" else read).append(each.memory)
        if use == "scratch" and scratch_bytes:
            fill = Fill(each.buffer, each.offset, each.nbytes, ZERO)
            steps.append(BoundStep(fill, (each.memory,), 0))
    steps.append(BoundStep(dispatch, read + written, len(read), bindings, check))
    return steps


def list_outputs_over_inputs(
    signature: Signature, places: Sequence[Hashable | None], in_place: bool
) -> list[int]:
    """Return the indices of the outputs that need memory of their own: their array is that of an
    input too, and the kernel may read the input after it has written the output.

    `places` has what identifies the array of each input, then of each output; None for an array
    that the kernel does not bind where it is. `in_place` is `Call.in_place`.
    """
    kernel = signature.kernel
    if not in_place or kernel.always_in_place:
        return []
    inputs = len(signature.inputs)
    passed = [argument for argument in kernel.arguments if argument.is_input]
    found = []
    for index, output in enumerate(signature.outputs):
        if output.is_input:  # an in-out argument is its own result, and overlaps no other array
            continue
        place = places[inputs + index]
        is_over_input = any(
            each == place and argument.binding not in kernel.in_place_bindings
            for each, argument in zip(places[:inputs], passed, strict=True)
        )
        if place is not None and is_over_input:
            found.append(index)
    return found
