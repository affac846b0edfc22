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
    find_aliased,
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
    return "names" if is_ambiguous(kernel, call) else ""


def is_refusal(error: Exception, faults: str) -> bool:
    """Whether an error says in words that one of these is wrong."""
    words = "|".join(WORDS[fault] for fault in faults.split())
    return (
        bool(faults)
        and isinstance(error, REFUSALS)
        and not isinstance(error, DeviceLacksError)
        and re.search(words, str(error), re.IGNORECASE) is not None
    )
