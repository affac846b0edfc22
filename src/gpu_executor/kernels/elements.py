"""Element kernels: field operations on device-resident arrays whose elements are below p.

They check nothing and have no status word: the typed arrays (`FieldArray`) guarantee the range.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_executor.errors import ArgumentShapeError, KernelError
from gpu_executor.kernel import Kernel, Shape, Tuning
from gpu_executor.kernel.arguments import declare_buffers
from gpu_executor.kernels.element_references import REFERENCES
from gpu_executor.kernels.families import (
    PACKED_ELEMENTS,
    family_constants,
    family_push,
    in_montgomery_form,
    limb_form_limbs,
    module_family,
    module_name,
)
from gpu_executor.kernels.modules import SpecId, encode_words, load_interface, load_spirv
from gpu_executor.primes import Prime

# The types of the inputs, then of the output: e is a field element, w a 32-bit word.
_SIGNATURES = {
    "add": ("ee", "e"),
    "sub": ("ee", "e"),
    "neg": ("e", "e"),
    "double": ("e", "e"),
    "mul": ("ee", "e"),
    "square": ("e", "e"),
    "fma": ("eee", "e"),
    "equal": ("ee", "w"),
    "select": ("wee", "e"),
    "power": ("ew", "e"),
    "to_montgomery": ("e", "e"),
    "from_montgomery": ("e", "e"),
}
OPERATIONS = tuple(_SIGNATURES)
CONVERSIONS = ("to_montgomery", "from_montgomery")
PRODUCTS = ("mul", "square", "fma", "power", *CONVERSIONS)
LIMB_FORM = ("power",)
"""The operations that compute many products of an element in limb form (glsl/limb_form.glsl)."""
PACKABLE = tuple(name for name in _SIGNATURES if name not in ("equal", "select"))
"""The operations with packed kernels: those that take and give elements alone, and powers, whose
exponent is one for all elements."""
CHECKABLE = ("add", "sub", "mul")
"""The operations that also have checked kernels, which the catalogue has by name (`catalogue`)."""

WORK_GROUP, PRODUCT_WORK_GROUP = 512, 128
"""Work-group sizes for large calls: those of the checked kernels (`catalogue`). For one-word
products the size makes no difference: 4.24 TB/s with 128, 256 and 512 on an NVIDIA H200."""


def element_kernel(
    prime: Prime,
    operation: str,
    *,
    broadcast: bool = False,
    grid_stride: bool | None = None,
    f64_limbs: bool = False,
    packed: bool = False,
) -> Kernel:
    """Return the kernel of an operation on elements of a prime; the same object every time.

    Inputs: `add`, `sub` and `mul` take a and b; `neg`, `double` and `square` take a; `fma` takes a,
    b and c and returns a * b + c. `equal` takes a and b and returns 1 or 0 as `uint32`. `select`
    takes conditions as `uint32`, a and b. `power` takes a and one exponent for all elements, as
    32-bit words, the least significant first. `to_montgomery` and `from_montgomery` take a; they
    exist for primes whose elements are in Montgomery form.

    With `broadcast`, operands after the first may be shorter: element i of the first goes with
    element i % period. Such a kernel and `power` have split="whole", the others split="elements". A
    `Dispatch` gives the periods as push words, 0 for an operand as long as the first. For `power`
    the push word is the number of words of the exponent.

    With `grid_stride`, any number of work-groups processes all elements. The default is a
    grid-stride loop for kernels with split="whole". The other kernels do not need the loop, and
    lavapipe is faster without it.

    With `f64_limbs`, the kernel multiplies f64 limbs if there is such a module
    (glsl/f64_limbs.glsl). With `packed` and without `broadcast`, an invocation loads 16 bytes of
    small elements at once (glsl/packed.glsl). A packed kernel is for dispatches on arrays that
    begin at a multiple of 16 bytes.
    """
    if operation not in _SIGNATURES:
        raise KernelError(
            f"there is no element kernel {operation!r}; the operations are {', '.join(OPERATIONS)}"
        )
    if operation in CONVERSIONS and not in_montgomery_form(prime):
        raise KernelError(
            f"{prime.name}: {operation} does not exist; elements are always in canonical form"
        )
    if broadcast and not _list_other_operands(operation):
        raise KernelError(f"{operation} has no second operand to broadcast")
    whole = broadcast or operation == "power"
    kind = module_family(prime, operation, f64_limbs=f64_limbs)
    grid_stride = whole if grid_stride is None else grid_stride
    packed = packed and not broadcast and kind in PACKED_ELEMENTS and operation in PACKABLE
    return _make_kernel(prime, kind, operation, broadcast, grid_stride, packed)


@functools.cache
def _make_kernel(
    prime: Prime, kind: str, operation: str, broadcast: bool, grid_stride: bool, packed: bool
) -> Kernel:
    module = module_name(kind, operation, packed=packed)
    code, interface = load_spirv(module), load_interface(module)
    inputs, output = _SIGNATURES[operation]
    types = {"e": prime.element_dtype, "w": np.dtype(np.uint32)}
    limbs = limb_form_limbs(prime, kind) if operation in LIMB_FORM else None
    push = family_push(prime, kind, interface, limbs)
    constants: dict[int, Any] = {
        **family_constants(prime, kind, interface, limbs),
        SpecId.GRID_STRIDE: grid_stride,
    }
    push_of: Callable[..., Sequence[int]] | None = None
    if operation == "power":
        push_of = _count_exponent_words
    elif broadcast:
        push_of = functools.partial(_find_periods, prime, operation)
    else:
        push += encode_words([0] * len(_list_other_operands(operation)))
    if _list_other_operands(operation):
        constants[SpecId.BROADCAST] = broadcast
    return Kernel.from_spirv(
        code,
        count=True,
        buffers=declare_buffers(len(inputs), [types[each] for each in inputs + output]),
        split="elements" if push_of is None else "whole",
        init=None,
        constants=constants,
        push=push if push_of is None else (push, push_of),
        tuning=Tuning(
            per_invocation=SpecId.PER_INVOCATION,
            packed=PACKED_ELEMENTS[kind] if packed else 1,
            in_place=push_of is None,
        ),
        work_group=PRODUCT_WORK_GROUP if operation in PRODUCTS else WORK_GROUP,
        name=f"{prime.name}_elements_{operation}",
        reference=functools.partial(REFERENCES[operation], prime),
    )


def _list_other_operands(operation: str) -> str:
    """Return the types of the operands that are combined with the first one element by element."""
    return "" if operation == "power" else _SIGNATURES[operation][0][1:]


def _count_exponent_words(_elements: Shape, exponent: Shape) -> tuple[int]:
    return (math.prod(exponent),)


def _find_periods(prime: Prime, operation: str, *shapes: Shape) -> list[int]:
    """Return the period of each operand after the first, in elements; 0 if it is as long as the
    first.
    """
    inputs, _ = _SIGNATURES[operation]
    own = {"e": len(prime.element_shape), "w": 0}
    first, *others = (
        math.prod(shape[: len(shape) - own[each]])
        for each, shape in zip(inputs, shapes, strict=True)
    )
    for index, count in enumerate(others, 1):
        if count > first:
            raise ArgumentShapeError(
                f"{prime.name}_elements_{operation}: argument {index} has {count} elements, more "
                f"than the {first} of argument 0; only shorter operands repeat"
            )
    return [0 if count == first else count for count in others]
