"""Calls: a kernel with arrays that were checked against it.

Every backend starts with `check`. It looks at dtypes and shapes only, so its result, a `Signature`,
is valid for every later call with arrays of the same dtypes and shapes; `SignatureCache` keeps it
for them. An array that does not fit the kernel raises an error that names the argument, what was
found and what the kernel takes. Strided, big-endian and read-only inputs are accepted as they are:
the code that copies them reads any memory layout.
"""

from __future__ import annotations

import itertools
import math
import operator
import struct
import sys
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Number
from typing import Any

import numpy as np

from gpu_executor.arguments import Argument, describe_dtype, have_same_layout
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError, KernelError
from gpu_executor.kernel import ElementType, Grid, Kernel, Shape, parse_grid, to_native
from gpu_executor.lru import remember
from gpu_executor.parameters import NO_VALUES, ParameterLayout, ParameterValues

Array = np.ndarray[Any, np.dtype[Any]]
AnyArray = Array | DeviceArray


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of a call: its element type, how many elements it has, and its access."""

    type: ElementType
    count: int
    is_input: bool = True
    is_output: bool = False

    @property
    def nbytes(self) -> int:
        return self.count * self.type.nbytes

    def resize(self, count: int) -> Operand:
        """The same operand with another number of elements."""
        return Operand(self.type, count, self.is_input, self.is_output)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call is apart from its data: calls whose arrays have equal dtypes and shapes have
    equal signatures."""

    kernel: Kernel
    count: int
    """The number of elements, which is the kernel's first push constant."""
    operands: tuple[Operand, ...]
    """One per argument of the kernel."""
    is_flat: bool
    """Whether every array is a plain array of shape (elements, *element shape), so that none has to
    be reshaped; nearly every call is."""
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    """The shapes and dtypes of the results as the caller gets them."""
    parameters: ParameterLayout = field(repr=False, compare=False)
    shape_words: bytes = b""
    """The push constants that the kernel's `push_of` computes from the shapes."""
    grid: Grid | None = None
    """The work-groups; None: one invocation for each of `invocations`, or a call sets the grid."""
    invocations: int = 0
    scratch_bytes: int = 0
    inputs: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    """The operands that the caller passes."""
    outputs: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    """The operands that the caller gets back."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Signatures are dictionary keys on the path of every call: hash once.
        identity = self.kernel, self.count, self.operands, self.is_flat, self.results
        inputs = tuple(operand for operand in self.operands if operand.is_input)
        outputs = tuple(operand for operand in self.operands if operand.is_output)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "_hash", hash(identity))

    def __hash__(self) -> int:
        return self._hash

    def make_call(self, arrays: Sequence[AnyArray], params: Any = None) -> Call:
        """A call of this signature on arrays that have it. Its outputs are not allocated yet."""
        values = self.parameters.default_values if params is None else None
        if values is None:
            values = self.parameters.encode(params)
        call = Call(self, arrays if self.is_flat else self._flatten(arrays))
        call.values = values
        if self.kernel.grid_takes_params:
            call.grid = self._compute_grid(arrays, params)
        return call

    def _flatten(kernel: Kernel, array: Array, operand: Operand, *, is_output: bool = False) -> Array:
    """An array with shape (elements, *element shape); a view of an output."""
    if operand.type.dtype.names is not None:
        array = array.view(operand.type.copied_dtype)
    flat = array.reshape(operand.count, *operand.type.shape)
    if is_output and flat.size and not np.may_share_memory(flat, array):
        raise ArgumentShapeError(
            f"{kernel.name}: an out array with several leading axes must be contiguous"
        )
    return flat


def _describe_type(value: Any) -> str:
    return f"a {type(value).__name__}"


def freeze_shape(out_shape: Any) -> Hashable:
    """The `out_shape` of a call as a hashable value."""
    if isinstance(out_shape, list | tuple):
        return tuple(map(freeze_shape, out_shape))
    frozen: Hashable = out_shape
    return frozen


def iterate_params(params: Any, jobs: int | None = None) -> Iterator[Any]:
    """The parameters of each job of a batch: a list has one entry per job, anything else serves
    all jobs."""
    if not isinstance(params, list):
        return itertools.repeat(params)
    if jobs is not None and len(params) != jobs:
        raise ArgumentTypeError(
            f"params lists {len(params)} entries for {jobs} jobs; it needs one for each job"
        )
    return iter(params)


MAX_SIGNATURES = 1024
"""Signatures in a cache; a full cache is emptied."""


def describe_arrays(arrays: Sequence[AnyArray]) -> list[Hashable]:
    """What distinguishes the signatures of calls of one kernel."""
    return [(type(array), array.dtype, array.shape) for array in arrays]


class SignatureCache:
    """The signatures of a backend's calls, so that only the first call with arrays of the same
    dtypes and shapes is checked."""

    def __init__(self, *, on_device: bool = True) -> None:
        """`on_device` says whether the backend accepts device arrays."""
        self._on_device = on_device
        self._known: dict[Hashable, Signature] = {}

    def get(
        self, kernel: Kernel, arrays: Sequence[AnyArray], out_shape: Any = None
    ) -> Signature:
        """The signature of a call; raises as `check` does."""
        try:
            key = (id(kernel), *describe_arrays(arrays), freeze_shape(out_shape))
        except AttributeError:
            # An argument is not an array: the check raises with its index.
            return check(kernel, arrays, on_device=self._on_device, out_shape=out_shape)
        signature = self._known.get(key)
        if signature is None:
            signature = check(kernel, arrays, on_device=self._on_device, out_shape=out_shape)
            # The signature refers to the kernel, so no other kernel can get the same id.
            remember(self._known, key, signature, MAX_SIGNATURES)
        return signature

    def make_job_call(
        self,
        kernel: Kernel,
        job: Sequence[Any],
        index: int,
        out: Any,
        params: Any = None,
        out_shape: Any = None,
    ) -> Call:
        """A job of a batch as a call; errors begin with the job's index."""
        try:
            if not isinstance(job, tuple | list):
                raise ArgumentTypeError(f"a job is a tuple of arrays, not a {type(job).__name__}")
            job = as_arrays(kernel, job)
            call = self.get(kernel, job, out_shape).make_call(job, params)
            call.job = index
            if out is not None:
                call.use_outputs(out)
        except GpuError as error:
            error.args = (f"job {index}: {error}",)
            raise
        return call
