"""The kernels that `load` knows by name, and two that measurements use: copy and product chain."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentShapeError, ElementRangeError, KernelError
from gpu_executor.kernel import Kernel, Shape
from gpu_executor.kernels import wgsl_texts
from gpu_executor.kernels.families import family_limbs, module_family
from gpu_executor.kernels.modules import (
    CHAIN_LENGTH,
    GRID_STRIDE,
    PER_INVOCATION,
    WORDS,
    encode_f64_modulus,
    encode_modulus,
    f64_limb_constants,
    limb_constants,
    load_spirv,
)
from gpu_executor.kernels.wgsl_texts import (
    MATRIX_TILE,
    REDUCTION_BLOCK,
    REDUCTION_INVOCATIONS,
    REDUCTIONS,
)
from gpu_executor.primes import NAMED, Prime, words

Array = npt.NDArray[Any]
Arithmetic = Callable[[Prime, Array, Array], Array]

TYPES: dict[str, Any] = {"u32": np.uint32, "f32": np.float32}
VECTOR_KERNELS = tuple(f"vector_add_{type_}" for type_ in TYPES)
MATRIX_KERNELS = tuple(f"matmul_{type_}" for type_ in TYPES)
REDUCTION_KERNELS = tuple(
    f"reduce_{operation}_{type_}" for operation in REDUCTIONS for type_ in TYPES
)
FIELD_OPERATIONS: dict[str, Arithmetic] = {"add": words.add, "sub": words.sub, "mul": words.mul}


def names() -> list[str]:
    """Return the names of all kernels that `load` can return."""
    fields = [f"{field}_{operation}" for field in NAMED for operation in FIELD_OPERATIONS]
    return [*VECTOR_KERNELS, *MATRIX_KERNELS, *REDUCTION_KERNELS, *fields]


def load(name: str) -> Kernel:
    """Return the kernel of that name; the same object every time."""
    if not isinstance(name, str):
        raise KernelError(
            f"a kernel's name is a string, not a {type(name).__name__}; the names are "
            f"{', '.join(names())}"
        )
    return _load(name)


@functools.cache
def _load(name: str) -> Kernel:
    prefix, _, suffix = name.rpartition("_")
    if name in VECTOR_KERNELS:
        return vector_kernel(suffix)
    if name in MATRIX_KERNELS:
        return matmul_kernel(suffix)
    if name in REDUCTION_KERNELS:
        return reduction_kernel(prefix.removeprefix("reduce_"), suffix)
    if prefix in NAMED and suffix in FIELD_OPERATIONS:
        return field_kernel(NAMED[prefix], suffix)
    raise KernelError(f"there is no kernel {name!r}; the names are {', '.join(names())}")


# --- vectors ---


@functools.cache
def vector_kernel(type_: str) -> Kernel:
    """Return the kernel of a + b, element by element; integers modulo 2^32."""
    dtype = TYPES[type_]
    return Kernel.from_spirv(
        load_spirv(f"vector_add_{type_}"),
        inputs=2,
        outputs=1,
        split="elements",
        dtypes=[dtype] * 3,
        per_invocation=PER_INVOCATION,
        name=f"vector_add_{type_}",
        reference=np.add,
        wgsl=wgsl_texts.render_vector_add(dtype),
    )


COPY_UNIT_BYTES = 16
"""The size in bytes of an element of `copy_kernel`: the largest that one instruction can load."""


@functools.cache
def copy_kernel() -> Kernel:
    """Return a kernel that copies elements of 16 bytes. It measures memory bandwidth and copies
    between device arrays: `vkCmdCopyBuffer` moves 0.83 TB/s on an NVIDIA H200, a fifth of a
    kernel's rate.
    """
    unit = np.dtype((np.uint64, (2,)))
    return Kernel.from_spirv(
        load_spirv("copy"),
        inputs=1,
        outputs=1,
        split="elements",
        dtypes=[unit, unit],
        constants={GRID_STRIDE: True},
        per_invocation=PER_INVOCATION,
        name="copy",
        reference=np.copy,
    )


# --- matrices ---


@functools.cache
def matmul_kernel(type_: str) -> Kernel:
    """Return the kernel of a @ b; integers modulo 2^32."""
    dtype = TYPES[type_]
    return Kernel.from_spirv(
        load_spirv(f"matmul_{type_}"),
        inputs=2,
        outputs=1,
        split="whole",
        dtypes=[dtype] * 3,
        out_shape=_compute_product_shape,
        init=None,
        push_of=_compute_product_sizes,
        name=f"matmul_{type_}",
        grid=_compute_tile_grid,
        reference=np.matmul,
        wgsl=wgsl_texts.render_matrix_product(dtype),
    )


def _compute_product_shape(a: Shape, b: Shape) -> tuple[int, int]:
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ArgumentShapeError(
            f"a matrix product takes arrays of shapes (m, k) and (k, n); found {a} and {b}"
        )
    return a[0], b[1]


def _compute_product_sizes(a: Shape, b: Shape) -> tuple[int, int, int]:
    return a[0], b[1], a[1]


def _compute_tile_grid(a: Shape, b: Shape) -> tuple[int, int]:
    return -(-b[1] // MATRIX_TILE), -(-a[0] // MATRIX_TILE)


# --- reductions ---
#
# One dispatch reduces each block of 4,096 elements to one value; repeated dispatches leave a single
# value. The order of the operations depends only on the number of elements. The reference uses the
# same order, so float sums agree to the last bit.

_COMBINE: dict[str, np.ufunc] = {"sum": np.add, "min": np.minimum, "max": np.maximum}


@functools.cache
def reduction_kernel(operation: str, type_: str) -> Kernel:
    """Return the kernel of one pass of a reduction: one result per block of `REDUCTION_BLOCK`
    elements.
    """
    dtype = TYPES[type_]
    return Kernel.from_spirv(
        load_spirv(f"reduce_{operation}_{type_}"),
        inputs=1,
        outputs=1,
        split="whole",
        dtypes=[dtype] * 2,
        out_shape=_count_blocks,
        init=None,
        name=f"reduce_{operation}_{type_}",
        reference=functools.partial(_reduce_blocks, operation, dtype),
        wgsl=wgsl_texts.render_reduction(operation, dtype),
    )


def _count_blocks(shape: Shape) -> int:
    return -(-math.prod(shape) // REDUCTION_BLOCK)


def _get_identity(operation: str, dtype: Any) -> Any:
    if operation == "sum":
        return 0 if dtype is np.uint32 else -0.0  # adding 0.0 would turn -0.0 into 0.0
    limits: Any = np.iinfo(np.uint32)
    ends = (limits.min, limits.max) if dtype is np.uint32 else (-np.inf, np.inf)
    return ends[operation == "min"]


def _reduce_blocks(operation: str, dtype: Any, array: Array) -> Array:
    flat = np.asarray(array, dtype).reshape(-1)
    combine, blocks = _COMBINE[operation], _count_blocks(flat.shape)
    padded = np.full(blocks * REDUCTION_BLOCK, _get_identity(operation, dtype), dtype)
    padded[: flat.size] = flat
    # Row r of a block holds the elements that the invocations combine in iteration r.
    rows = padded.reshape(blocks, -1, REDUCTION_INVOCATIONS)
    with np.errstate(all="ignore"):
        partials = np.full((blocks, REDUCTION_INVOCATIONS), _get_identity(operation, dtype), dtype)
        for iteration in range(rows.shape[1]):
            partials = combine(partials, rows[:, iteration])
        half = REDUCTION_INVOCATIONS // 2
        while half:
            partials = combine(partials[:, :half], partials[:, half : 2 * half])
            half //= 2
    return np.ascontiguousarray(partials[:, 0])


# --- prime fields, with checked elements ---

WORK_GROUPS = {"add": 512, "sub": 512, "mul": 128}
"""Work-group sizes for large calls. On an NVIDIA H200, 2^24 elements, in G/s with 64, 128, 256 and
512 invocations of two elements each: 381-bit addition 27.5, 27.7, 27.9, 29.2; 381-bit product 20.1,
20.1, 19.2, 15.3."""


@functools.cache
def field_kernel(prime: Prime, operation: str) -> Kernel:
    """Return the kernel of addition, subtraction or Montgomery product; each SPIR-V module serves
    every prime.
    """
    multiplies = operation == "mul"
    modulus = prime.limbs.split(prime.modulus) if multiplies else prime.modulus_words
    constants = limb_constants(prime) if multiplies else {WORDS: prime.words}
    return Kernel.from_spirv(
        load_spirv(f"field_{operation}"),
        inputs=2,
        outputs=1,
        split="elements",
        dtypes=[prime.element_dtype] * 3,
        constants=constants | {GRID_STRIDE: False},
        push=encode_modulus(modulus),
        status=True,
        per_invocation=PER_INVOCATION,
        work_group=WORK_GROUPS[operation],
        name=f"{prime.name}_{operation}",
        reference=functools.partial(_compute_checked, prime, operation),
        wgsl=wgsl_texts.render_field_operation(prime, operation),
    )


@functools.cache
def mul_chain_kernel(prime: Prime, length: int, *, f64_limbs: bool = False) -> Kernel:
    """Return a kernel of `length` dependent products by the same factor, to measure the multiplier
    alone; `length` is even.
    """
    kind = module_family(prime, "field_mul_chain", f64_limbs=f64_limbs)
    if kind == "f64_limbs":
        limbs = family_limbs(prime, kind)
        code = load_spirv("f64_limbs_field_mul_chain")
        constants = f64_limb_constants(prime, limbs)
        push = encode_f64_modulus(limbs.split(prime.modulus))
    else:
        code = load_spirv("field_mul_chain")
        constants = limb_constants(prime)
        push = encode_modulus(prime.limbs.split(prime.modulus))
    return Kernel.from_spirv(
        code,
        inputs=2,
        outputs=1,
        split="elements",
        dtypes=[prime.element_dtype] * 3,
        constants=constants | {CHAIN_LENGTH: length, PER_INVOCATION: 1},
        push=push,
        status=True,
        name=f"{prime.name}_mul_chain_{length}",
    )


def _compute_checked(prime: Prime, operation: str, a: Array, b: Array) -> Array:
    first_bad = [words.first_not_below(prime, array) for array in (a, b)]
    bad = [(index, argument) for argument, index in enumerate(first_bad) if index is not None]
    if bad:
        index, argument = min(bad)
        raise ElementRangeError(f"{prime.name}_{operation}", argument, index)
    return FIELD_OPERATIONS[operation](prime, a, b)
