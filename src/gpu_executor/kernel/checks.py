"""Checks of a new kernel: its declaration against itself, its SPIR-V and its WGSL."""

from __future__ import annotations

import re
from numbers import Integral

from gpu_executor.errors import ArgumentTypeError, KernelError
from gpu_executor.kernel.contract import KernelContract
from gpu_executor.kernel.wgsl import PARAMETER_WORDS


def check_declaration(kernel: KernelContract) -> None:
    """Refuse a declaration that contradicts itself."""
    where = f"kernel {kernel.name!r}"
    if kernel.outputs < 1 and not kernel.status:
        raise KernelError(
            f"{where} has no output and no in-out argument, so nothing comes back from it"
        )
    if kernel.split not in ("elements", "whole"):
        raise KernelError(f"{where}: split is {kernel.split!r}; it must be 'elements' or 'whole'")
    if kernel.split == "elements":
        _check_splittable(kernel)
    if kernel.wgsl is not None:
        taken = len(kernel.wgsl.data) + 4 * len(kernel.wgsl.params)
        if len(kernel.wgsl.data) % 4:
            raise KernelError(
                f"{where}: push has {len(kernel.wgsl.data)} bytes; it must be a multiple of 4"
            )
        if taken > 4 * (PARAMETER_WORDS - 1):
            raise KernelError(
                f"{where}: push and params have {taken} bytes; at most "
                f"{4 * (PARAMETER_WORDS - 1)} fit after the number of elements"
            )
    size = kernel.work_group
    if size is not None and (not isinstance(size, Integral) or size < 1):
        raise KernelError(
            f"{where}: work_group is {size!r}; it must be a whole number of invocations, at least "
            "1, or None"
        )


def _check_splittable(kernel: KernelContract) -> None:
    """Refuse split="elements" where a chunk cannot be computed by itself."""
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    advice = "give split='whole'"
    if kernel.out_shape is not None:
        raise KernelError(
            f"{where} has split='elements', so its outputs have its inputs' shape; drop out_shape "
            f"or {advice}"
        )
    if not kernel.inputs:
        raise KernelError(
            f"{where} has split='elements' and no inputs, so it can only depend on the index of "
            f"an element, which starts anew in each chunk; {advice}"
        )
    if kernel.grid is not None:
        raise KernelError(
            f"{where} has split='elements', so the number of elements determines its work-groups; "
            f"drop grid or {advice}"
        )
    if kernel.scratch is not None:
        raise KernelError(
            f"{where} has split='elements', but all elements would share its scratch buffer; "
            f"{advice}"
        )
    fixed = [argument for argument in kernel.arguments if argument.length is not None]
    if fixed:
        raise KernelError(
            f"{where} has split='elements', but binding {fixed[0].binding} has a fixed length of "
            f"{fixed[0].length}; {advice}"
        )
    shared = "barriers" if interface.has_barriers else "shared memory"
    if interface.has_barriers or interface.has_shared_memory:
        raise KernelError(
            f"{where} has split='elements', but its code has {shared}, so elements depend on "
            f"each other; {advice}"
        )
    bindings = {argument.binding for argument in kernel.arguments}
    for buffer in interface.buffers:
        if buffer.atomics and buffer.binding in bindings:
            raise KernelError(
                f"{where} has split='elements', but its code has atomic operations on binding "
                f"{buffer.binding}; {advice}"
            )


def check_against_code(kernel: KernelContract) -> None:
    """Refuse a declaration that contradicts the SPIR-V."""
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    hidden = interface.buffers[len(kernel.arguments) :]
    if len(hidden) != kernel.hidden_buffers:
        raise KernelError(
            f"{where}: the code has the bindings {list(interface.bindings)}; the scratch buffer "
            "and the status word are the last of them"
        )
    if kernel.status and hidden[-1].binding in interface.read_only:
        raise KernelError(
            f"{where}: binding {hidden[-1].binding}, the status word, is readonly in the code"
        )
    if len(kernel.push) % 4:
        raise KernelError(f"{where}: push has {len(kernel.push)} bytes; it must be a multiple of 4")
    given = kernel.count_bytes + len(kernel.push)
    if given > interface.push_constant_bytes:
        raise KernelError(
            f"{where}: the code declares {interface.push_constant_bytes} bytes of push constants, "
            f"but the element count and push ({len(kernel.push)} bytes) make {given}"
        )
    if kernel.push_of is None:  # otherwise a call finds out where the parameters begin
        try:
            kernel.make_parameters(b"")
        except ArgumentTypeError as error:
            raise KernelError(str(error)) from None
        kernel.check_wgsl_parameters(b"")
    _, y, z = kernel.local_size()
    if (y > 1 or z > 1) and kernel.grid is None:
        raise KernelError(
            f"{where} has work-groups of {kernel.local_size()}; say with grid= how many of them a "
            "call has in x, y and z"
        )
    _check_per_invocation(kernel)
    _check_chosen_constants(kernel)


def _check_chosen_constants(kernel: KernelContract) -> None:
    """Refuse code whose layout depends on a specialization constant that the plan chooses."""
    where, interface = f"kernel {kernel.name!r}", kernel.interface
    x, *others = interface.local_size.spec_ids
    own = dict(kernel.constants)
    chosen = {kernel.per_invocation}
    if kernel.is_tuned or kernel.work_group is not None:
        chosen.add(x)
    open_ids = chosen - {None} - own.keys()
    for spec_id in sorted(interface.length_ids & open_ids):
        raise KernelError(
            f"{where}: the length of an array in a block depends on specialization constant "
            f"{spec_id}, which is not known when the kernel is made; set it with "
            f"constants={{{spec_id}: ...}}"
        )
    if kernel.is_tuned and x in open_ids and x in others:
        raise KernelError(
            f"{where}: specialization constant {x} is the work-group's size in more than one "
            f"dimension, so the plan cannot choose it; set it with constants={{{x}: ...}}"
        )


def check_words(kernel: KernelContract, wgsl: KernelContract) -> None:
    """Check that a kernel and the kernel of its WGSL are declared alike where the text cannot
    tell: words before the parameters, the parameters, the work-groups."""
    where = f"kernel {kernel.name!r}: wgsl is kernel {wgsl.name!r}"
    assert wgsl.wgsl is not None
    if kernel.push_of is None and not wgsl.spirv:
        names, words = kernel.make_parameters(b"").names, list(wgsl.wgsl.params)
        if len(names) != len(words) or (all(names) and names != words):
            raise KernelError(
                f"{where}, whose params are {words}; those of the SPIR-V are {names}. Give the "
                "text itself if a parameter has several words"
            )
    for name in ("split", "status"):
        if getattr(kernel, name) != getattr(wgsl, name):
            raise KernelError(
                f"{where}, whose {name} is {getattr(wgsl, name)!r}; this kernel's is "
                f"{getattr(kernel, name)!r}"
            )


def check_work_group(kernel: KernelContract) -> None:
    """Check that a WGSL text uses the plan's work-group size, which determines the number of
    work-groups.
    """
    assert kernel.wgsl is not None
    found = re.search(r"@workgroup_size\s*\(([^)]*)\)", kernel.wgsl.blank_comments())
    if found is not None and not re.search(r"\bwork_group\b", found[1]) and kernel.grid is None:
        raise KernelError(
            f"kernel {kernel.name!r}: the text has {found[0]}; write @workgroup_size(work_group), "
            "or give grid="
        )


def _check_per_invocation(kernel: KernelContract) -> None:
    tuned = kernel.per_invocation
    if tuned is None:
        return
    taken = {*dict(kernel.constants), *kernel.interface.local_size.spec_ids}
    free = [
        constant.spec_id
        for constant in kernel.interface.constants
        if constant.spec_id not in taken and constant.kind in ("int", "uint")
    ]
    if tuned not in free:
        raise KernelError(
            f"kernel {kernel.name!r}: per_invocation of tuning is constant {tuned}; it must be an "
            f"integer constant that neither constants= nor the work-group size sets: {free}"
        )
