"""Element kernels: field operations for arrays on the card, whose elements are known to be below p.

They have no status word and check nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpu_executor.errors import ArgumentShapeError, KernelError
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels.constants import BROADCAST, PER_INVOCATION, STRIDES, packed
from gpu_executor.kernels.element_references import REFERENCES
from gpu_executor.kernels.families import (
    NEIGHBOURS,
    family_constants,
    family_push,
    in_montgomery_form,
    module_family,
    module_name,
)
from gpu_executor.kernels.modules import spirv
from gpu_executor.primes import Prime
from gpu_executor.spirv import read_interface

# The inputs' and the output's types: field elements, or 32-bit words.
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
OF_ELEMENTS = tuple(name for name, types in _SIGNATURES.items() if {*types[0], *types[1]} == {"e"})
"""Those of elements and nothing else, of which an invocation can take several at once."""

WORK_GROUP, PRODUCT_WORK_GROUP = 512, 128
"""For large calls, what is best for sums and products that check their elements (`catalogue`). For
products of one word it makes no difference: 4.24 TB/s with 128, 256 and 512 on an NVIDIA H200."""


def element_kernel(
    prime: Prime,
    operation: str,
    *,
    broadcast: bool = False,
    strides: bool | None = None,
    doubles: bool = False,
    neighbours: bool = False,
) -> Kernel:
    """The kernel of an operation on elements of a prime; the same object every time.

    `add`, `sub`, `mul`: a, b. `neg`, `double`, `square`: a. `fma`: a * b + c. `equal`: 1 or 0 as
    `uint32`. `select`: a where a `uint32` is not 0, else b. `power`: a, and an exponent for all of
    them as 32-bit words, the least significant first. `to_montgomery`, `from_montgomery`: a, for
    primes whose elements are not left as they are.

    With `broadcast`, operands behind the first may be shorter: element i meets i % period. Such a
    kernel, like `power`, is not cut by elements; the others are. Whoever dispatches one gives the
    periods as words, 0 for an operand as long as the first (`power`: how many words the exponent
    has).

    One that `strides` takes any number of elements with any number of work-groups. Kernels that are
    not cut do, unless told otherwise; the others need not, and lavapipe is faster so.

    With `doubles`, products are made of them where that can be (glsl/doubles.glsl). With
    `neighbours`, an invocation takes as many small elements as fill 16 bytes, unless operands may
    be shorter (glsl/neighbours.glsl): such a kernel is for arrays that begin at a multiple of 16
    bytes, and for dispatches.
    """
    if operation not in _SIGNATURES:
        raise KernelError(
            f"there is no element kernel {operation!r}; there are {', '.join(OPERATIONS)}"
        )
    if operation in CONVERSIONS and not in_montgomery_form(prime):
        raise KernelError(f"{prime.name}: elements stay as they are, without a Montgomery form")
    if broadcast and not _others(operation):
        raise KernelError(f"{operation} has no second operand that could be shorter")
    whole = broadcast or operation == "power"
    kind = module_family(prime, operation, doubles=doubles)
    strides = whole if strides is None else strides
    several = neighbours and not broadcast and kind in NEIGHBOURS and operation in OF_ELEMENTS
    return _element_kernel(prime, kind, operation, broadcast, strides, several)


@functools.cache
def _element_kernel(
    prime: Prime, kind: str, operation: str, broadcast: bool, strides: bool, several: bool
) -> Kernel:
    code = spirv(module_name(kind, operation, neighbours=several))
    interface = read_interface(code)
    inputs, output = _SIGNATURES[operation]
    types = {"e": prime.element_dtype, "w": np.dtype(np.uint32)}
    push = family_push(prime, kind, interface)
    constants: dict[int, Any] = {**family_constants(prime, kind, interface), STRIDES: strides}
    push_of: Callable[..., Sequence[int]] | None = None
    if operation == "power":
        push_of = _exponent_words
    elif broadcast:
        push_of = functools.partial(_periods, prime, operation)
    else:
        push += packed([0] * len(_others(operation)))
    if _others(operation):
        constants[BROADCAST] = broadcast
    return Kernel.from_spirv(
        code,
        inputs=len(inputs),
        outputs=1,
        split="elements" if push_of is None else "whole",
        dtypes=[types[each] for each in inputs + output],
        constants=constants,
        push=push,
        push_of=push_of,
        per_invocation=PER_INVOCATION,
        neighbours=NEIGHBOURS[kind] if several else 1,
        work_group=PRODUCT_WORK_GROUP if operation in PRODUCTS else WORK_GROUP,
        name=f"{prime.name}_elements_{operation}",
        reference=functools.partial(REFERENCES[operation], prime),
    )


def _others(operation: str) -> str:
    """The operands that go with the first one element by element."""
    return "" if operation == "power" else _SIGNATURES[operation][0][1:]


def _exponent_words(_elements: Shape, exponent: Shape) -> tuple[int]:
    return (math.prod(exponent),)


def _periods(prime: Prime, operation: str, *shapes: Shape) -> list[int]:
    """After how many elements each operand but the first begins again; 0 for one as long as it."""
    inputs, _ = _SIGNATURES[operation]
    own = {"e": len(prime.element_shape), "w": 0}
    first, *others = (
        math.prod(shape[: len(shape) - own[each]])
        for each, shape in zip(inputs, shapes, strict=True)
    )
    for index, count in enumerate(others, 1):
        if count > first:
            raise ArgumentShapeError(
                f"{prime.name}_elements_{operation}: argument {index} has {count} elements and "
                f"argument 0 has {first}; it can be shorter, not longer"
            )
    return [0 if count == first else count for count in others]
