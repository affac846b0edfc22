"""The kernels that `load` knows by name, and those that measurements use: a copy and two chains."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ElementRangeError, KernelError
from gpu_executor.kernel import Kernel, Tuning
from gpu_executor.kernel.arguments import declare_buffers
from gpu_executor.kernels import wgsl_texts
from gpu_executor.kernels.families import (
    family_constants,
    family_push,
    module_family,
    module_name,
)
from gpu_executor.kernels.matmul import matmul_kernel
from gpu_executor.kernels.modules import (
    SpecId,
    encode_modulus,
    encode_words,
    limb_constants,
    load_interface,
    load_spirv,
)
from gpu_executor.kernels.reduction import BY_BLOCK_SUFFIX, reduction_kernel
from gpu_executor.kernels.wgsl_texts import REDUCTIONS
from gpu_executor.primes import NAMED, Prime, words
from gpu_executor.primes.named import RENAMED

Array = npt.NDArray[Any]
Arithmetic = Callable[[Prime, Array, Array], Array]

TYPES: dict[str, Any] = {"u32": np.uint32, "f32": np.float32}
VECTOR_KERNELS = tuple(f"vector_add_{type_}" for type_ in TYPES)
MATRIX_KERNELS = tuple(f"matmul_{type_}" for type_ in TYPES)
REDUCTION_KERNELS = tuple(
    f"reduce_{operation}_{type_}" for operation in REDUCTIONS for type_ in TYPES
)
BLOCK_REDUCTION_KERNELS = tuple(f"{name}{BY_BLOCK_SUFFIX}" for name in REDUCTION_KERNELS)
FIELD_OPERATIONS: dict[str, Arithmetic] = {
    "add": words.add,
    "sub": words.sub,
    "mont_mul": words.mont_mul,
}
DEPRECATED_NAMES = {f"{field}_mul": f"{field}_mont_mul" for field in NAMED}
"""Old names that `load` still knows, and the names that replace them: `Field.mul` is the product of
two elements, and these kernels compute Montgomery products."""
RENAMED_KERNELS = {
    f"{old}_{operation}".lower(): f"{new}_{operation}".lower()
    for old, new in RENAMED.items()
    for operation in FIELD_OPERATIONS
}
"""Names by those that fields had before, and the names that have taken their place."""


def names() -> list[str]:
    """Return the names of all kernels, without deprecated names."""
    fields = [f"{field}_{operation}" for field in NAMED for operation in FIELD_OPERATIONS]
    reductions = [*REDUCTION_KERNELS, *BLOCK_REDUCTION_KERNELS]
    return [*VECTOR_KERNELS, *MATRIX_KERNELS, *reductions, *fields]


def load(name: str) -> Kernel:
    """Return a kernel of the package; the same object every time.

    Args:
        name (str): One of `names()`.

    Raises:
        KernelError: There is no kernel of this name.
    """
    if not isinstance(name, str):
        raise KernelError(
            f"a kernel's name is a string, not {type(name).__name__}; the names are "
            f"{', '.join(names())}"
        )
    if name in DEPRECATED_NAMES:
        new = DEPRECATED_NAMES[name]
        warnings.warn(
            f"the kernel {name!r} computes a Montgomery product and is now named {new!r}; "
            "load it by that name",
            DeprecationWarning,
            stacklevel=2,
        )
        name = new
    return _load(name)


def split_field_name(name: str) -> tuple[str, str] | None:
    """Return the field and the operation in the name of a field kernel; None for other kernels."""
    for operation in FIELD_OPERATIONS:
        field = name.removesuffix(f"_{operation}")
        if field != name and field in NAMED:
            return field, operation
    return None


@functools.cache
def _load(name: str) -> Kernel:
    prefix, _, suffix = name.rpartition("_")
    if name in VECTOR_KERNELS:
        return vector_kernel(suffix)
    if name in MATRIX_KERNELS:
        return matmul_kernel(suffix)
    if name in REDUCTION_KERNELS:
        return reduction_kernel(prefix.removeprefix("reduce_"), suffix)
    if name in BLOCK_REDUCTION_KERNELS:
        _, operation, type_, *_ = name.split("_")
        return reduction_kernel(operation, type_, by_block=True)
    if found := split_field_name(name):
        field, operation = found
        return field_kernel(NAMED[field], operation)
    if name in RENAMED_KERNELS:
        raise KernelError(f"the kernel {name!r} is now named {RENAMED_KERNELS[name]!r}")
    raise KernelError(f"there is no kernel {name!r}; the names are {', '.join(names())}")


# --- vectors ---

ELEMENTWISE = Tuning(per_invocation=SpecId.PER_INVOCATION, in_place=True)
"""An invocation reads its elements before it writes them, as many as the plan says."""


@functools.cache
def vector_kernel(type_: str) -> Kernel:
    """Return the kernel of a + b, element by element; integers modulo 2^32."""
    dtype = TYPES[type_]
    return Kernel.from_spirv(
        load_spirv(f"vector_add_{type_}"),
        count=True,
        buffers=declare_buffers(2, [dtype] * 3),
        split="elements",
        init=None,
        tuning=ELEMENTWISE,
        name=f"vector_add_{type_}",
        reference=np.add,
        wgsl=wgsl_texts.render_vector_add(dtype),
    )


COPY_UNIT_BYTES = 16
"""The size in bytes of an element of `copy_kernel`: the largest that one instruction can load."""


@functools.cache
def copy_kernel() -> Kernel:
    """Return a kernel that copies elements of 16 bytes. It measures memory bandwidth and copies
    between device arrays (`VendorProfile.kernel_copy_bytes`).
    """
    unit = np.dtype((np.uint64, (2,)))
    return Kernel.from_spirv(
        load_spirv("copy"),
        count=True,
        buffers=declare_buffers(1, [unit, unit]),
        split="elements",
        init=None,
        constants={SpecId.GRID_STRIDE: True},
        tuning=ELEMENTWISE,
        name="copy",
        reference=np.copy,
    )


@functools.cache
def find_zero_kernel() -> Kernel:
    """Return the kernel whose status word is the index of the first element that is 0. Its push
    constants are the number of elements and the number of 32-bit words of each.
    """
    return Kernel.from_spirv(
        load_spirv("find_zero"),
        count=True,
        buffers="in u4, status",
        split="elements",
        init=None,
        constants={SpecId.GRID_STRIDE: True},
        tuning=Tuning(per_invocation=SpecId.PER_INVOCATION),
        name="find_zero",
    )


STRIDED_COPY_AXES = 4


@functools.cache
def strided_copy_kernel(unit: int, *, words_only: bool = False) -> Kernel:
    """Return the kernel that copies units of 1, 2 or 4 bytes between arrays with any strides.
    `words_only`: for a device whose buffers have no smaller integers than words.

    Its push constants (glsl/strided_copy.glsl) have `STRIDED_COPY_AXES` axes.
    """
    if words_only and unit < 4:
        return Kernel.from_spirv(
            load_spirv("strided_copy_parts"),
            count=True,
            buffers=declare_buffers(1, [np.dtype(np.uint32)] * 2),
            split="whole",
            init=None,
            constants={SpecId.UNIT_BITS: 8 * unit},
            name=f"strided_copy_u{8 * unit}_parts",
        )
    dtype = np.dtype(f"u{unit}")
    return Kernel.from_spirv(
        load_spirv(f"strided_copy_u{8 * unit}"),
        count=True,
        buffers=declare_buffers(1, [dtype, dtype]),
        split="whole",
        init=None,
        name=f"strided_copy_u{8 * unit}",
    )


FMA_CHAINS = 8
"""The number of chains of each invocation of `fma_chain_kernel`."""


@functools.cache
def fma_chain_kernel(length: int) -> Kernel:
    """Return a kernel of `FMA_CHAINS` chains of `length` dependent multiply-adds of f32 for each
    element, to measure the arithmetic alone; `length` is a multiple of 16.
    """
    return Kernel.from_spirv(
        load_spirv("fma_chain_f32"),
        count=True,
        buffers="in f4, out f4",
        split="elements",
        init=None,
        constants={SpecId.CHAIN_LENGTH: length},
        tuning=Tuning(in_place=True),
        name=f"fma_chain_f32_{length}",
    )


# --- prime fields, with checked elements ---

WORK_GROUPS = {"add": 512, "sub": 512, "mont_mul": 128}
"""Work-group sizes for large calls; a plan takes the largest of `WORK_GROUP_SIZES` that the device
allows, up to these. Sizes are multiples of every subgroup. Sums wait for memory, and products
need many registers, which a device allots by work-groups. On an NVIDIA H200, 2^24 elements, in G/s
with 64, 128, 256 and 512 invocations of two elements each: 381-bit addition 27.5, 27.7, 27.9, 29.2;
381-bit product 20.1, 20.1, 19.2, 15.3."""


@functools.cache
def field_kernel(prime: Prime, operation: str) -> Kernel:
    """Return the kernel of addition, subtraction or Montgomery product ("add", "sub", "mont_mul").

    Each SPIR-V module serves every prime: that of the family `wide`, whose product is the
    Montgomery product also where a field's own family has canonical elements.
    """
    multiplies = operation == "mont_mul"
    modulus = prime.limbs.split(prime.modulus) if multiplies else prime.modulus_words
    constants: dict[int, int] = (
        limb_constants(prime, prime.limbs) if multiplies else {SpecId.WORDS: prime.words}
    )
    return Kernel.from_spirv(
        load_spirv(module_name("wide", operation.removeprefix("mont_"), checked=True)),
        count=True,
        buffers=declare_buffers(2, [prime.element_dtype] * 3, status=True),
        split="elements",
        init=None,
        constants=constants | {SpecId.GRID_STRIDE: False, SpecId.BROADCAST: False},
        push=encode_modulus(modulus) + encode_words([0]),  # the period of b: b does not repeat
        tuning=ELEMENTWISE,
        work_group=WORK_GROUPS[operation],
        name=f"{prime.name}_{operation}",
        reference=functools.partial(_compute_checked, prime, operation),
    )


def find_field_operation(kernel: Kernel) -> tuple[Prime, str] | None:
    """Return the prime and the operation of a kernel that `field_kernel` made; else None.

    The result has the form of the arguments. Sums and differences do in either form, and the
    Montgomery product of a R and b R is a R b R / R = (a b) R.
    """
    made = kernel.reference
    if not isinstance(made, functools.partial) or made.func is not _compute_checked:
        return None
    prime, operation = made.args
    return prime, operation


@functools.cache
def mont_mul_chain_kernel(prime: Prime, length: int, *, f64_limbs: bool = False) -> Kernel:
    """Return a kernel of `length` dependent Montgomery products by the same factor, to measure the
    multiplier alone; `length` is even.
    """
    kind = module_family(prime, "mont_mul_chain", f64_limbs=f64_limbs)
    kind = kind if kind == "f64_limbs" else "wide"
    module = module_name(kind, "mont_mul_chain")
    code, interface = load_spirv(module), load_interface(module)
    constants = family_constants(prime, kind, interface)
    return Kernel.from_spirv(
        code,
        count=True,
        buffers=declare_buffers(2, [prime.element_dtype] * 3, status=True),
        split="elements",
        init=None,
        constants=constants | {SpecId.CHAIN_LENGTH: length, SpecId.PER_INVOCATION: 1},
        push=family_push(prime, kind, interface),
        tuning=Tuning(in_place=True),
        name=f"{prime.name}_mont_mul_chain_{length}",
    )


def _compute_checked(prime: Prime, operation: str, a: Array, b: Array) -> Array:
    first_bad = [words.first_not_below(prime, array) for array in (a, b)]
    bad = [(index, argument) for argument, index in enumerate(first_bad) if index is not None]
    if bad:
        index, argument = min(bad)
        raise ElementRangeError(f"{prime.name}_{operation}", argument, index)
    return FIELD_OPERATIONS[operation](prime, a, b)
