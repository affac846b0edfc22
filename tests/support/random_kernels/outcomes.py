"""What must happen: a right result, or an error in words."""

from __future__ import annotations

import math
import re

from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    DeviceLacksError,
    KernelError,
)
from tests.support.random_kernels.description import Call, Description, have_overlap
from tests.support.random_kernels.memory import (
    DEVICE_LAYOUTS,
    find_aliased,
    get_layout,
    list_outputs,
    list_passed,
)
from tests.support.random_kernels.parameters import find_fault_in_count, is_ambiguous
from tests.support.random_kernels.sizes import get_shape
from tests.support.random_kernels.work_groups import is_size_missing

REFUSALS = (KernelError, ArgumentTypeError, ArgumentShapeError)
WORDS = {
    "size": "work.group",
    "count": "count|member",
    "layout": "overlap|layout|length|dtype",
    "value": "value|parameter|name|grid",
    "names": "name|twice|both",
    "overlap": "overlap",
    "copy": "cannot be copied to one of",
    "fields": "Cannot cast array data",
    "defaults": "declare one default",
}
"""Words of which the message of a refusal has one, by what is wrong."""


def predict_kernel(kernel: Description) -> str:
    """What is wrong with a kernel, so that it or each of its calls is refused: some of the words of
    `WORDS`; "": nothing."""
    blocks = [
        have_overlap([each for each in kernel.params if each.block == "push"]),
        have_overlap([each for each in kernel.params if each.block == "uniform"], "std140"),
        any(buffer.block and have_overlap(buffer.members) for buffer in kernel.buffers),
    ]
    faults = {
        "size": is_size_missing(kernel),
        "count": bool(find_fault_in_count(kernel)),
        "layout": any(blocks),
    }
    return " ".join(name for name, is_there in faults.items() if is_there)


def predict_call(kernel: Description, call: Call) -> str:
    """What is wrong with a call, so that it is refused; "": nothing."""
    if call.omitted is not None:
        return "value"
    aliased = find_aliased(kernel, call)
    has_inout = any(each.role == "inout" for each in kernel.buffers)
    passed, outputs = list_passed(kernel), list_outputs(kernel)
    sizes = [math.prod(get_shape(kernel, number, call)) for number in passed]
    for result, number in aliased.items():
        if has_inout and passed[number] != outputs[result] and sizes[number]:
            return "overlap"
    if any(kind.startswith("overlap ") for kind in call.outs):
        return "overlap"
    return ""


def may_refuse(kernel: Description, call: Call) -> str:
    """What a call may be refused for, though it may also be right; "": nothing."""
    found = {"names": is_ambiguous(kernel, call), **_find_open_defects(kernel, call)}
    return " ".join(name for name, is_there in found.items() if is_there)


def _find_open_defects(kernel: Description, call: Call) -> dict[str, bool]:
    """Defects of the package that are loud: it refuses what it should run. Each entry goes when its
    defect is mended."""
    passed = [
        (kernel.buffers[number], get_layout(call, at), get_shape(kernel, number, call))
        for at, number in enumerate(list_passed(kernel))
    ]
    on_device = call.keep or any(
        each in DEVICE_LAYOUTS for each in (*call.outs, *(layout for _, layout, _ in passed))
    )
    return {
        # A host array that is an in-out argument of a call on the device: a struct, or with
        # several axes.
        "copy": on_device
        and any(
            buffer.role == "inout"
            and layout not in DEVICE_LAYOUTS
            and (bool(buffer.members) or len(shape) > 1 + len(buffer.trailing))
            for buffer, layout, shape in passed
        ),
        # The names of fields differ from those of `out=`, which is on the host.
        "fields": on_device
        and bool(call.outs)
        and kernel.optimize
        and any(kernel.buffers[number].members for number in list_outputs(kernel)),
    }


def may_refuse_kernel(kernel: Description) -> str:
    """What making a kernel may be refused for, a defect like those of calls: the constant of the
    work-group size is named, and the code is for Vulkan 1.3."""
    return "defaults" if kernel.size_default and kernel.target == "vulkan1.3" else ""


def is_refusal(error: Exception, faults: str) -> bool:
    """Whether an error says in words that one of these is wrong."""
    words = "|".join(WORDS[fault] for fault in faults.split())
    kinds = (*REFUSALS, TypeError) if "fields" in faults else REFUSALS
    return (
        bool(faults)
        and isinstance(error, kinds)
        and not isinstance(error, DeviceLacksError)
        and re.search(words, str(error), re.IGNORECASE) is not None
    )
