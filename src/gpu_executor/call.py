"""Calls: a kernel with arrays that were checked against it.

Every backend starts with `check`. It looks at dtypes and shapes only, so its result, a `Signature`,
is valid for every later call with arrays of the same dtypes and shapes; `SignatureCache` keeps it
for them. An array that does not fit the kernel raises an error that names the argument, what was
found and what the kernel takes. Strided, big-endian and read-only inputs are accepted as they are:
the code that copies them reads any memory layout.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from gpu_executor.arguments import check_is_kernel, describe, is_masked
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError, KernelError
from gpu_executor.kernel import COUNT_BYTES, ElementType, Kernel, Shape, to_native
from gpu_executor.lru import remember
from gpu_executor.overlaps import is_same_view, may_overlap, overlaps_itself

Array = np.ndarray[Any, np.dtype[Any]]
AnyArray = Array | DeviceArray


@dataclass(frozen=True, slots=True)
class Operand:
    """One storage buffer of a call: its element type and how many elements it has."""

    type: ElementType
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * self.type.nbytes


@dataclass(frozen=True, slots=True)
class Signature:
    """What a call is apart from its data: calls whose arrays have equal dtypes and shapes have
    equal signatures."""

    kernel: Kernel
    count: int
    """The number of elements, which is the kernel's first push constant."""
    operands: tuple[Operand, ...]
    """The inputs, then the outputs."""
    is_flat: bool
    """Whether every array is a plain array of shape (elements, *element shape), so that none has to
    be reshaped; nearly every call is."""
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    """The outputs' shapes and dtypes as the caller gets them."""
    shape_words: bytes = b""
    """The push constants that the kernel's `push_of` computes from the inputs' shapes."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Signatures are dictionary keys on the path of every call: hash once.
        identity = self.kernel, self.count, self.operands, self.is_flat, self.results
        object.__setattr__(self, "_hash", hash(identity))

    def __hash__(self) -> int:
        return self._hash

    def make_call(self, arrays: Sequence[AnyArray]) -> Call:
        """A call of this signature on arrays that have it. Its outputs are not allocated yet."""
        if self.is_flat:
            return Call(self, arrays)
        inputs = self.operands[: self.kernel.inputs]
        return Call(
            self,
            [
                array
                if isinstance(array, DeviceArray)
                else np.asarray(array).reshape(operand.count, *operand.type.shape)
                for array, operand in zip(arrays, inputs, strict=True)
            ],
        )


class Call:
    """A kernel on arrays. Inputs and outputs have shape (elements, *element shape)."""

    __slots__ = ("buffer_ranges", "imports", "inputs", "job", "outputs", "results", "signature")

    def __init__(self, signature: Signature, inputs: Sequence[Any]) -> None:
        self.signature = signature
        self.inputs = inputs
        self.job: int | None = None
        """Its index in a batch, None outside batches."""
        self.buffer_ranges: Any = None
        """Where the backend can use the arrays in place; None where it copies all of them."""
        self.imports: Any = None
        """What the backend keeps alive for the call because its buffer ranges lie in it."""
        self.outputs: list[Any] = []
        self.results: list[Any] = []
        """The outputs in the shapes that the caller gets, over the same memory."""

    def make_outputs(self) -> None:
        """Allocate the outputs if the call has none yet. Backends do it while the device works."""
        if not self.results:
            self.set_outputs([np.empty(shape, dtype) for shape, dtype in self.signature.results])

    def use_outputs(self, given: Any) -> None:
        """Check the caller's `out` (an array, or a tuple of several) and write into it."""
        results = _check_outputs(self.signature, given)
        _check_overlaps(self.signature.kernel.name, self.inputs, results)
        self.set_outputs(results)

    def set_outputs(self, results: list[Any]) -> None:
        """Write into these arrays, which have the signature's shapes and dtypes."""
        self.outputs = self.results = results
        if not self.signature.is_flat:
            outputs = self.signature.operands[self.signature.kernel.inputs :]
            self.outputs = [
                _flatten(self.signature.kernel, array, output)
                for array, output in zip(results, outputs, strict=True)
            ]

    def touches_device(self) -> bool:
        """Whether any of its arrays is a device array."""
        return any(isinstance(array, DeviceArray) for array in (*self.inputs, *self.results))

    def set_device_outputs(self, results: Sequence[DeviceArray]) -> None:
        """Write into these device arrays and leave the results in them."""
        self.results = self.outputs = list(results)

    def result(self) -> Any:
        """What the caller gets: the output array, or a tuple where there are several."""
        return self.results[0] if len(self.results) == 1 else tuple(self.results)


def check(kernel: Kernel, arrays: Sequence[Any], *, on_device: bool = True) -> Signature:
    """Check the arrays against the kernel; raises `GpuError` for the first that does not fit.

    `on_device=False` refuses device arrays, for backends that cannot use them.
    """
    check_is_kernel(kernel)
    if len(arrays) != kernel.inputs:
        raise ArgumentTypeError(f"{kernel.name} takes {kernel.inputs} arrays and got {len(arrays)}")
    if not on_device:
        _check_on_host(kernel, arrays)
    types = kernel.types or (None,) * kernel.inputs
    inputs = [
        _check_input(kernel, index, array, types[index]) for index, array in enumerate(arrays)
    ]
    count = inputs[0].count
    if kernel.split == "elements":
        _check_equal_shapes(kernel, arrays, inputs)
    else:
        _check_not_empty(kernel, inputs)
    shapes, outputs = _derive_outputs(kernel, arrays, inputs[0])
    operands = (*inputs, *outputs)
    actual = [*(array.shape for array in arrays), *shapes]
    is_flat = all(type(array) in (np.ndarray, DeviceArray) for array in arrays) and all(
        shape == (operand.count, *operand.type.shape)
        for shape, operand in zip(actual, operands, strict=True)
    )
    results = tuple(
        (shape, output.type.dtype) for shape, output in zip(shapes, outputs, strict=True)
    )
    return Signature(kernel, count, operands, is_flat, results, _pack_shape_words(kernel, arrays))


def _pack_shape_words(kernel: Kernel, arrays: Sequence[Any]) -> bytes:
    if kernel.push_of is None:
        return b""
    words = _parse_shape_words(kernel, kernel.push_of(*(array.shape for array in arrays)))
    room = kernel.interface.push_constant_bytes - COUNT_BYTES - len(kernel.push)
    if kernel.spirv and 4 * len(words) != room:
        raise KernelError(
            f"kernel {kernel.name!r}: push_of returned {len(words)} words; its code declares "
            f"{room // 4} after the element count and push"
        )
    return struct.pack(f"<{len(words)}I", *words)


def _parse_shape_words(kernel: Kernel, returned: Any) -> list[int]:
    """Check what a kernel's `push_of` returned: numbers that fit 32-bit words."""
    try:
        words = [operator.index(word) for word in returned]
        fits = all(0 <= word < 1 << 32 for word in words)
    except TypeError:
        fits = False
    if not fits:
        raise KernelError(
            f"kernel {kernel.name!r}: push_of returned {returned!r}; it must return a sequence of "
            "whole numbers from 0 to 2^32 - 1"
        )
    return words


def _check_on_host(kernel: Kernel, arrays: Sequence[Any]) -> None:
    for index, array in enumerate(arrays):
        if isinstance(array, DeviceArray):
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} is a device array, which this backend cannot "
                "use; copy it to the host with .numpy()"
            )


def _check_input(kernel: Kernel, index: int, array: Any, type_: ElementType | None) -> Operand:
    if not isinstance(array, np.ndarray | DeviceArray):
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} is {describe(array)}; it takes a NumPy array"
        )
    if is_masked(array):
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} is a masked array, and kernels ignore masks; pass "
            "its .data, or .filled(value)"
        )
    if type_ is None:
        if array.dtype.kind not in "biufc":
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} has dtype {array.dtype}; a kernel takes numbers"
            )
        return Operand(ElementType(to_native(array.dtype)), array.size)
    if to_native(array.dtype) != type_.dtype:
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} has dtype {array.dtype}; it takes {type_.dtype} "
            f"(convert with .astype(np.{type_.dtype}))"
        )
    leading = array.ndim - len(type_.shape)
    if leading < 0 or array.shape[leading:] != type_.shape:
        wanted = ", ".join(["n", *map(str, type_.shape)])
        raise ArgumentShapeError(
            f"{kernel.name}: argument {index} has shape {array.shape}; it takes ({wanted})"
        )
    return Operand(type_, math.prod(array.shape[:leading]))


def _check_equal_shapes(kernel: Kernel, arrays: Sequence[Array], inputs: Sequence[Operand]) -> None:
    """The kernel combines element i of one argument with element i of the others, so all have
    equally many, in equal leading axes."""
    shapes = [
        _get_leading_shape(array, operand.type)
        for array, operand in zip(arrays, inputs, strict=True)
    ]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ArgumentShapeError(
                f"{kernel.name}: argument {index} has elements in shape {shape} and argument 0 in "
                f"shape {shapes[0]}; they must be equal"
            )


def _get_leading_shape(array: Array, type_: ElementType) -> Shape:
    """The array's shape without the trailing axes that belong to an element."""
    shape: Shape = array.shape
    return shape[: len(shape) - len(type_.shape)]


def _check_not_empty(kernel: Kernel, inputs: Sequence[Operand]) -> None:
    for index, operand in enumerate(inputs):
        if operand.count == 0:
            raise ArgumentShapeError(
                f"{kernel.name}: argument {index} is empty; a kernel with split='whole' needs at "
                "least one element"
            )


def _derive_outputs(
    kernel: Kernel, arrays: Sequence[Array], first: Operand
) -> tuple[tuple[Shape, ...], tuple[Operand, ...]]:
    """The outputs' shapes and operands: from the kernel's `out_shape`, or with the leading axes of
    argument 0 where the kernel has none."""
    types = (first.type,) * kernel.outputs
    if kernel.types is not None:
        types = kernel.types[kernel.inputs :]
    if kernel.out_shape is not None:
        returned = kernel.out_shape(*(array.shape for array in arrays))
        shapes = _parse_out_shape(kernel, types, returned)
    else:
        leading = _get_leading_shape(arrays[0], first.type)
        shapes = [leading + type_.shape for type_ in types]
    operands = (
        Operand(type_, math.prod(shape[: len(shape) - len(type_.shape)]))
        for shape, type_ in zip(shapes, types, strict=True)
    )
    return tuple(shapes), tuple(operands)


def _parse_out_shape(kernel: Kernel, types: tuple[ElementType, ...], returned: Any) -> list[Shape]:
    """The shapes that `out_shape` returned: one shape, or a list of one for each output."""
    given = returned if isinstance(returned, list) or kernel.outputs > 1 else [returned]
    try:
        shapes = [
            tuple(map(operator.index, [shape] if isinstance(shape, Integral) else shape))
            for shape in given
        ]
    except TypeError:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape returned {returned!r}; it must return a shape, or a list of "
            f"{kernel.outputs} shapes"
        ) from None
    if len(shapes) != kernel.outputs:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape returned {len(shapes)} shapes for {kernel.outputs} outputs"
        )
    for shape, type_ in zip(shapes, types, strict=True):
        if min(shape, default=1) < 1:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape returned {shape}; every axis must be at least 1"
            )
        if shape[len(shape) - len(type_.shape) :] != type_.shape:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape returned {shape}; its last axes must be {type_.shape}"
            )
    return shapes


def _check_outputs(signature: Signature, given: Any) -> list[Array]:
    kernel = signature.kernel
    arrays = list(given) if isinstance(given, tuple | list) else [given]
    if len(arrays) != kernel.outputs:
        raise ArgumentTypeError(
            f"{kernel.name} has {kernel.outputs} outputs and out has {len(arrays)} arrays"
        )
    for index, (array, (shape, dtype)) in enumerate(zip(arrays, signature.results, strict=True)):
        if not isinstance(array, np.ndarray) or array.dtype != dtype:
            is_array = isinstance(array, np.ndarray)
            found = f"has dtype {array.dtype}" if is_array else f"is {describe(array)}"
            raise ArgumentTypeError(
                f"{kernel.name}: out {index} {found}; it must be a NumPy array of {dtype}"
            )
        if array.shape != shape:
            raise ArgumentShapeError(
                f"{kernel.name}: out {index} has shape {array.shape}; it must be {shape}"
            )
        if not array.flags.writeable:
            raise ArgumentTypeError(
                f"{kernel.name}: out {index} is read-only; pass an array that can be written"
            )
        if is_masked(array):
            raise ArgumentTypeError(
                f"{kernel.name}: out {index} is a masked array, and kernels ignore masks; pass its "
                ".data"
            )
        if overlaps_itself(array):
            raise ArgumentShapeError(
                f"{kernel.name}: elements of out {index} share memory (strides {array.strides}); "
                "pass an array with memory for each element"
            )
    return arrays


def _check_overlaps(name: str, inputs: Sequence[Any], results: Sequence[Array]) -> None:
    """An output may be the same array as an input: each element is read before it is written. An
    output that overlaps an input otherwise would overwrite elements that are yet to be read."""
    for index, target in enumerate(results):
        for number, source in enumerate(inputs):
            if isinstance(source, DeviceArray):
                continue
            if may_overlap(target, source) and not is_same_view(target, source):
                raise ArgumentShapeError(
                    f"{name}: out {index} overlaps argument {number} without being the same array; "
                    "pass that array itself or one with memory of its own"
                )
        for number, other in enumerate(results[:index]):
            if may_overlap(target, other):
                raise ArgumentShapeError(
                    f"{name}: out {index} overlaps out {number}; each output needs memory of its "
                    "own"
                )


def _flatten(kernel: Kernel, array: Array, operand: Operand) -> Array:
    """A view of an output with shape (elements, *element shape)."""
    flat = array.reshape(operand.count, *operand.type.shape)
    if flat.size and not np.may_share_memory(flat, array):
        raise ArgumentShapeError(
            f"{kernel.name}: an out array with several leading axes must be contiguous"
        )
    return flat


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

    def get(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> Signature:
        """The signature of a call; raises as `check` does."""
        try:
            key = (id(kernel), *describe_arrays(arrays))
        except AttributeError:
            # An argument is not an array: the check raises with its index.
            return check(kernel, arrays, on_device=self._on_device)
        signature = self._known.get(key)
        if signature is None:
            signature = check(kernel, arrays, on_device=self._on_device)
            # The signature refers to the kernel, so no other kernel can get the same id.
            remember(self._known, key, signature, MAX_SIGNATURES)
        return signature

    def make_job_call(self, kernel: Kernel, job: Sequence[AnyArray], index: int, out: Any) -> Call:
        """A job of a batch as a call; errors begin with the job's index."""
        try:
            if not isinstance(job, tuple | list):
                raise ArgumentTypeError(f"a job is a tuple of arrays, not a {type(job).__name__}")
            call = self.get(kernel, job).make_call(job)
            call.job = index
            if out is not None:
                call.use_outputs(out)
        except GpuError as error:
            error.args = (f"job {index}: {error}",)
            raise
        return call
