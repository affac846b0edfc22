"""Names to kernels: which SPIR-V, which constants, which reference."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ElementRangeError, KernelError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import matrices, reductions, wgsl_texts
from gpu_executor.kernels.constants import (
    CHAIN_LENGTH,
    PER_INVOCATION,
    STRIDES,
    WORDS,
    double_constants,
    limb_constants,
    packed_doubles,
    packed_modulus,
)
from gpu_executor.kernels.families import family_limbs, module_family
from gpu_executor.kernels.modules import spirv
from gpu_executor.primes import NAMED, Prime, words

__all__ = [
    "FIELD_OPERATIONS",
    "PER_INVOCATION",
    "field_kernel",
    "load",
    "mul_chain_kernel",
    "names",
]

Array = npt.NDArray[Any]
Arithmetic = Callable[[Prime, Array, Array], Array]

FIELD_OPERATIONS: dict[str, Arithmetic] = {"add": words.add, "sub": words.sub, "mul": words.mul}
WORK_GROUPS = {"add": 512, "sub": 512, "mul": 128}
"""For large calls. On an NVIDIA H200, 2^24 elements, in G/s with 64, 128, 256, 512 invocations of
two elements each: 381-bit addition 27.5, 27.7, 27.9, 29.2; 381-bit product 20.1, 20.1, 19.2, 15.3.
"""
VECTOR_KERNELS = {"vector_add_u32": np.uint32, "vector_add_f32": np.float32}


def names() -> list[str]:
    """Every name that `load` knows."""
    fields = [f"{field}_{operation}" for field in NAMED for operation in FIELD_OPERATIONS]
    return [*VECTOR_KERNELS, *matrices.NAMES, *reductions.NAMES, *fields]


@functools.cache
def load(name: str) -> Kernel:
    """The kernel of that name; the same object every time."""
    if name in VECTOR_KERNELS:
        return _vector_kernel(name)
    if name in matrices.NAMES:
        return matrices.matmul_kernel(name.removeprefix("matmul_"))
    if name in reductions.NAMES:
        _, operation, type_ = name.split("_")
        return reductions.reduction_kernel(operation, type_)
    field, _, operation = name.rpartition("_")
    if field in NAMED and operation in FIELD_OPERATIONS:
        return field_kernel(NAMED[field], operation)
    raise KernelError(f"there is no kernel {name!r}; there are {', '.join(names())}")


@functools.cache
def field_kernel(prime: Prime, operation: str) -> Kernel:
    """Addition, subtraction or Montgomery product modulo any prime: one SPIR-V serves them all."""
    element = prime.element_dtype
    multiplies = operation == "mul"
    modulus = prime.limbs.split(prime.modulus) if multiplies else prime.modulus_words
    return Kernel.from_spirv(
        spirv(f"field_{operation}"),
        inputs=2,
        outputs=1,
        dtypes=[element] * 3,
        constants=(limb_constants(prime) if multiplies else {WORDS: prime.words})
        | {STRIDES: False},
        push=packed_modulus(modulus),
        status=True,
        per_invocation=PER_INVOCATION,
        work_group=WORK_GROUPS[operation],
        name=f"{prime.name}_{operation}",
        reference=functools.partial(_field_reference, prime, operation),
        wgsl=wgsl_texts.field_operation(prime, operation),
    )


@functools.cache
def mul_chain_kernel(prime: Prime, length: int, *, doubles: bool = False) -> Kernel:
    """`length` (even) dependent products by the same factor: what measures the multiplier."""
    kind = module_family(prime, "field_mul_chain", doubles=doubles)
    constants, push = limb_constants(prime), packed_modulus(prime.limbs.split(prime.modulus))
    if kind == "doubles":
        limbs = family_limbs(prime, kind)
        constants = double_constants(prime, limbs)
        push = packed_doubles(limbs.split(prime.modulus))
    return Kernel.from_spirv(
        spirv("doubles_field_mul_chain" if kind == "doubles" else "field_mul_chain"),
        inputs=2,
        outputs=1,
        dtypes=[prime.element_dtype] * 3,
        constants=constants | {CHAIN_LENGTH: length, PER_INVOCATION: 1},
        push=push,
        status=True,
        name=f"{prime.name}_mul_chain_{length}",
    )


def _vector_kernel(name: str) -> Kernel:
    dtype = VECTOR_KERNELS[name]
    return Kernel.from_spirv(
        spirv(name),
        inputs=2,
        outputs=1,
        dtypes=[dtype] * 3,
        per_invocation=PER_INVOCATION,
        name=name,
        reference=np.add,
        wgsl=wgsl_texts.vector_add(dtype),
    )


def _field_reference(prime: Prime, operation: str, a: Array, b: Array) -> Array:
    first_bad = [words.first_not_below(prime, array) for array in (a, b)]
    bad = [(index, argument) for argument, index in enumerate(first_bad) if index is not None]
    if bad:
        index, argument = min(bad)
        raise ElementRangeError(f"{prime.name}_{operation}", argument, index)
    return FIELD_OPERATIONS[operation](prime, a, b)
