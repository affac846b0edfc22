"""What a kernel's WGSL says about the kernel: its work-groups, checked against its declaration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.errors import KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.kernel.wgsl import DEFAULT_WORK_GROUP, WgslCode


@dataclass(frozen=True, slots=True)
class WorkGroupUse:
    """How a kernel's text divides its work among invocations."""

    fixed: int | None
    """The work-group size, if the plan does not choose it."""
    per_invocation: bool
    """Whether an invocation computes as many elements as the plan chooses."""
    rows: bool
    """Whether the text counts the work-groups of a grid with several rows."""

    @classmethod
    def read(cls, kernel: Kernel, code: WgslCode) -> WorkGroupUse:
        """Read it from the text; refuse a work-group whose size is unknown."""
        sizes = code.find_work_group()
        if kernel.grid is not None:
            return cls(kernel.work_group or DEFAULT_WORK_GROUP, per_invocation=False, rows=False)
        where = (
            f"kernel {kernel.name!r}: the text has @workgroup_size({', '.join(map(str, sizes))})"
        )
        if any(size != 1 for size in sizes[1:]):
            raise KernelError(f"{where}; say with grid= how many work-groups a call has")
        x = sizes[0] if sizes else "work_group"
        if isinstance(x, str) and x != "work_group":
            raise KernelError(
                f"{where}; write @workgroup_size(work_group) or a number, or give grid="
            )
        several = code.uses("per_invocation")
        fixed = x if isinstance(x, int) else None
        if fixed is None and kernel.split == "whole" and not several:
            # The text may compute with the size, so that it must be the same for every call.
            fixed = kernel.work_group or DEFAULT_WORK_GROUP
        return cls(
            fixed,
            several,
            code.uses("first_element") or code.uses("num_workgroups"),
        )


def check_text(kernel: Kernel) -> WgslCode:
    """Check a kernel's declaration against its WGSL; return the WGSL."""
    where = f"kernel {kernel.name!r}"
    if kernel.wgsl is None:
        raise KernelError(f"{where} has no WGSL, so WebGPU cannot run it")
    for variable in kernel.wgsl.find_storage_variables():
        if variable.binding >= len(kernel.arguments):
            continue
        argument = kernel.arguments[variable.binding]
        what = f"{where}: argument {variable.binding}"
        if variable.writable != argument.is_output:
            access = "read_write" if argument.is_output else "read"
            raise KernelError(
                f"{what} is declared {argument.access!r}, so its variable in the text must be "
                f"var<storage, {access}>"
            )
        dtype, found = argument.type.dtype, variable.float_dtype
        if found is not None and dtype.names is None and not _holds(dtype, np.dtype(found)):
            raise KernelError(
                f"{what} has dtype {dtype}, but the text computes with {np.dtype(found)}"
            )
    return kernel.wgsl


def _holds(dtype: np.dtype[Any], number: np.dtype[Any]) -> bool:
    """Whether an element type consists of these floats; a complex number has two."""
    return dtype == number or (dtype.kind == "c" and dtype.itemsize == 2 * number.itemsize)
