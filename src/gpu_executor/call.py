"""A call, checked: a kernel and the arrays it is to run on, nothing wrong with them any more.

Every backend starts here. The check sees dtypes and shapes only, so its outcome, the `Signature`,
holds for every later call with arrays of the same. What does not fit the kernel stops with an error
that names the argument, what was found and what fits; arrays that merely lie awkwardly in memory
(strided, big-endian, read-only) are taken as they are: whoever copies them reads any layout.

SignatureCache: the outcome of checking a call, remembered for the next call with arrays like its.
"""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, GpuError, KernelError
from gpu_executor.kernel import COUNT_BYTES, ElementType, Kernel, Shape, to_native
from gpu_executor.lru import remember

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
    """What a call is apart from its data. Arrays of equal dtypes and shapes have an equal form."""

    kernel: Kernel
    count: int
    """The number of elements: what the kernel gets as its first push constant."""
    operands: tuple[Operand, ...]
    """The inputs, then the outputs."""
    as_rows: bool
    """Whether all are plain arrays of (elements, *element shape) already, as nearly always."""
    results: tuple[tuple[Shape, np.dtype[Any]], ...]
    """The outputs' shapes and dtypes as the caller gets them."""
    shape_words: bytes = b""
    """What the kernel's `push_of` makes of the inputs' shapes."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # SignatureCache are dictionary keys on the path of every call: hash once.
        identity = self.kernel, self.count, self.operands, self.as_rows, self.results
        object.__setattr__(self, "_hash", hash(identity))

    def __hash__(self) -> int:
        return self._hash

    def call(self, arrays: Sequence[AnyArray]) -> Call:
        """A call of this form on arrays that have it; its outputs are yet to be made."""
        if self.as_rows:
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
    """A kernel on arrays: inputs and outputs as (elements, *element shape)."""

    __slots__ = ("buffer_ranges", "inputs", "job", "outputs", "results", "signature")

    def __init__(self, signature: Signature, inputs: Sequence[Any]) -> None:
        self.signature = signature
        self.inputs = inputs
        self.job: int | None = None
        """Its number in a batch."""
        self.buffer_ranges: Any = None
        """Where a backend reaches the arrays without copying them; None where it copies all."""
        self.outputs: list[Any] = []
        self.results: list[Any] = []
        """The outputs again, in the shapes that the caller gets."""

    def make_outputs(self) -> None:
        """Make room for the outputs; while the device works is a good time."""
        if not self.results:
            self.set_outputs([np.empty(shape, dtype) for shape, dtype in self.signature.results])

    def use_outputs(self, given: Any) -> None:
        """Write into these arrays (one, or a tuple of several) instead of new ones."""
        results = _check_outputs(self.signature, given)
        _check_overlaps(self.signature.kernel.name, self.inputs, results)
        self.set_outputs(results)

    def set_outputs(self, results: list[Any]) -> None:
        """Write into these arrays, which fit."""
        self.outputs = self.results = results
        if not self.signature.as_rows:
            outputs = self.signature.operands[self.signature.kernel.inputs :]
            self.outputs = [
                _as_rows(self.signature.kernel, array, output)
                for array, output in zip(results, outputs, strict=True)
            ]

    def touches_device(self) -> bool:
        """Whether any of its arrays is on the card."""
        return any(isinstance(array, DeviceArray) for array in (*self.inputs, *self.results))

    def keep_outputs(self, results: Sequence[DeviceArray]) -> None:
        """Leave the outputs on the card, in these arrays."""
        self.results = self.outputs = list(results)

    def result(self) -> Any:
        """What the caller gets: the output, or a tuple of several."""
        return self.results[0] if len(self.results) == 1 else tuple(self.results)


def check(kernel: Kernel, arrays: Sequence[Any], *, on_device: bool = True) -> Signature:
    """Hold the arrays against the kernel; what does not fit raises in words.

    With `on_card=False` arrays must be the host's: for backends that reach no others.
    """
    if not isinstance(kernel, Kernel):
        raise ArgumentTypeError(
            f"the first argument is {_found(kernel)}; it is a Kernel: gx.kernels.load(name) or "
            "gx.Kernel.from_spirv(...)"
        )
    if len(arrays) != kernel.inputs:
        raise ArgumentTypeError(f"{kernel.name} takes {kernel.inputs} arrays and got {len(arrays)}")
    if not on_device:
        _check_on_host(kernel, arrays)
    types = kernel.types or (None,) * kernel.inputs
    inputs = [_input(kernel, index, array, types[index]) for index, array in enumerate(arrays)]
    count = inputs[0].count
    if kernel.split == "elements":
        _check_alike(kernel, arrays, inputs)
    else:
        _check_none_empty(kernel, inputs)
    shapes, outputs = _outputs(kernel, arrays, inputs[0])
    operands = (*inputs, *outputs)
    actual = [*(array.shape for array in arrays), *shapes]
    as_rows = all(type(array) in (np.ndarray, DeviceArray) for array in arrays) and all(
        shape == (operand.count, *operand.type.shape)
        for shape, operand in zip(actual, operands, strict=True)
    )
    results = tuple(
        (shape, output.type.dtype) for shape, output in zip(shapes, outputs, strict=True)
    )
    return Signature(kernel, count, operands, as_rows, results, _shape_words(kernel, arrays))


def _shape_words(kernel: Kernel, arrays: Sequence[Any]) -> bytes:
    if kernel.push_of is None:
        return b""
    words = kernel.push_of(*(array.shape for array in arrays))
    room = kernel.interface.push_constant_bytes - COUNT_BYTES - len(kernel.push)
    if kernel.spirv and 4 * len(words) != room:
        raise KernelError(
            f"kernel {kernel.name!r}: push_of gave {len(words)} words; its code has room for "
            f"{room // 4} behind the element count and push"
        )
    return struct.pack(f"<{len(words)}I", *words)


def _check_on_host(kernel: Kernel, arrays: Sequence[Any]) -> None:
    for index, array in enumerate(arrays):
        if isinstance(array, DeviceArray):
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} is on a card that this backend does not reach; "
                "fetch it with .numpy()"
            )


def is_masked(array: object) -> bool:
    """Whether it is a masked array of NumPy, of which there is none before `numpy.ma` is loaded;
    `import numpy` alone does not load it."""
    if type(array) is np.ndarray:
        return False
    return isinstance(array, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def _input(kernel: Kernel, index: int, array: Any, type_: ElementType | None) -> Operand:
    if not isinstance(array, np.ndarray | DeviceArray):
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} is {_found(array)}; it takes a NumPy array"
        )
    if is_masked(array):
        raise ArgumentTypeError(
            f"{kernel.name}: argument {index} is a masked array, whose mask a kernel cannot see; "
            "pass its data"
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


def _check_alike(kernel: Kernel, arrays: Sequence[Array], inputs: Sequence[Operand]) -> None:
    """Element i of one argument meets element i of another, so they lie in equal shapes."""
    shapes = [_leading(array, operand.type) for array, operand in zip(arrays, inputs, strict=True)]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ArgumentShapeError(
                f"{kernel.name}: argument {index} has elements in shape {shape} and argument 0 in "
                f"shape {shapes[0]}; they must be equal"
            )


def _leading(array: Array, type_: ElementType) -> Shape:
    """The shape in which the elements lie: the array's, without an element's own."""
    shape: Shape = array.shape
    return shape[: len(shape) - len(type_.shape)]


def _check_none_empty(kernel: Kernel, inputs: Sequence[Operand]) -> None:
    for index, operand in enumerate(inputs):
        if operand.count == 0:
            raise ArgumentShapeError(
                f"{kernel.name}: argument {index} is empty; a kernel that is not cut by elements "
                "needs some"
            )


def _outputs(
    kernel: Kernel, arrays: Sequence[Array], first: Operand
) -> tuple[tuple[Shape, ...], tuple[Operand, ...]]:
    """The outputs' shapes: as `out_shape` says, else with as many elements as argument 0."""
    types = (first.type,) * kernel.outputs
    if kernel.types is not None:
        types = kernel.types[kernel.inputs :]
    if kernel.out_shape is not None:
        shapes = _asked_shapes(kernel, types, kernel.out_shape(*(array.shape for array in arrays)))
    else:
        leading = _leading(arrays[0], first.type)
        shapes = [leading + type_.shape for type_ in types]
    operands = (
        Operand(type_, math.prod(shape[: len(shape) - len(type_.shape)]))
        for shape, type_ in zip(shapes, types, strict=True)
    )
    return tuple(shapes), tuple(operands)


def _asked_shapes(kernel: Kernel, types: tuple[ElementType, ...], asked: Any) -> list[Shape]:
    """What `out_shape` said: one shape, or a list of them for several outputs."""
    given = asked if isinstance(asked, list) or kernel.outputs > 1 else [asked]
    try:
        shapes = [
            tuple(map(operator.index, [shape] if isinstance(shape, Integral) else shape))
            for shape in given
        ]
    except TypeError:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape gave {asked!r}; it gives a shape, or a list of "
            f"{kernel.outputs} shapes"
        ) from None
    if len(shapes) != kernel.outputs:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape gave {len(shapes)} shapes for {kernel.outputs} outputs"
        )
    for shape, type_ in zip(shapes, types, strict=True):
        if min(shape, default=1) < 1:
            raise ArgumentShapeError(f"{kernel.name}: out_shape gave {shape}, which holds nothing")
        if shape[len(shape) - len(type_.shape) :] != type_.shape:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape gave {shape}; its last axes must be {type_.shape}"
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
            found = _found(array) if not isinstance(array, np.ndarray) else f"dtype {array.dtype}"
            raise ArgumentTypeError(f"{kernel.name}: out {index} is {found}; it takes {dtype}")
        if array.shape != shape:
            raise ArgumentShapeError(
                f"{kernel.name}: out {index} has shape {array.shape}; it takes {shape}"
            )
        if not array.flags.writeable:
            raise ArgumentTypeError(f"{kernel.name}: out {index} is read-only")
    return arrays


def _check_overlaps(name: str, inputs: Sequence[Any], results: Sequence[Array]) -> None:
    """An output may be an input, element for element; half of one would be read after written."""
    for index, target in enumerate(results):
        for number, source in enumerate(inputs):
            if isinstance(source, DeviceArray):
                continue
            if _overlap(target, source) and not _same(target, source):
                raise ArgumentShapeError(
                    f"{name}: out {index} overlaps argument {number} without being it; use memory "
                    "of its own"
                )
        for number, other in enumerate(results[:index]):
            if _overlap(target, other):
                raise ArgumentShapeError(f"{name}: out {index} overlaps out {number}")


def _overlap(a: Array, b: Array) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _same(a: Array, b: Array) -> bool:
    place = ("data", "strides", "typestr")
    one, other = a.__array_interface__, b.__array_interface__
    return a.size == b.size and all(one[key] == other[key] for key in place)


def _as_rows(kernel: Kernel, array: Array, operand: Operand) -> Array:
    rows = array.reshape(operand.count, *operand.type.shape)
    if rows.size and not np.may_share_memory(rows, array):
        raise ArgumentShapeError(
            f"{kernel.name}: an out of several leading axes must be contiguous"
        )
    return rows


def _found(value: Any) -> str:
    return f"a {type(value).__name__}"


REMEMBERED = 1024


def describe_arrays(arrays: Sequence[AnyArray]) -> list[Hashable]:
    """What tells the forms of calls apart."""
    return [(type(array), array.dtype, array.shape) for array in arrays]


class SignatureCache:
    """One of these belongs to a backend; `on_card` says whether it takes arrays on the card."""

    def __init__(self, *, on_device: bool = True) -> None:
        self._on_card = on_device
        self._known: dict[Hashable, Signature] = {}

    def signature(self, kernel: Kernel, arrays: Sequence[AnyArray]) -> Signature:
        """The form of a call; what does not fit the kernel raises in words."""
        try:
            key = (id(kernel), *describe_arrays(arrays))
        except AttributeError:
            return check(
                kernel, arrays, on_device=self._on_card
            )  # something among them is no array: the check says so
        signature = self._known.get(key)
        if signature is None:
            signature = check(kernel, arrays, on_device=self._on_card)
            # The form keeps the kernel, so that its id stays its own.
            remember(self._known, key, signature, REMEMBERED)
        return signature

    def job(self, kernel: Kernel, job: Sequence[AnyArray], index: int, out: Any) -> Call:
        """A job of a batch as a call; what is wrong with it is said with its index."""
        try:
            if not isinstance(job, tuple | list):
                raise ArgumentTypeError(f"a job is a tuple of arrays, not a {type(job).__name__}")
            call = self.signature(kernel, job).call(job)
            call.job = index
            if out is not None:
                call.use_outputs(out)
        except GpuError as error:
            error.args = (f"job {index}: {error}",)
            raise
        return call
