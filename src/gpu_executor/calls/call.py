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
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field
from numbers import Integral, Number
from typing import Any

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.arrays.overlaps import is_same_view, list_outputs, may_overlap, overlaps_itself
from gpu_executor.arrays.typed_array import TypedArray, TypedWords
from gpu_executor.calls.arguments import (
    check_is_kernel,
    count_nouns,
    describe,
    is_masked,
    parse_count,
)
from gpu_executor.common.lean_dataclass import dataclass
from gpu_executor.common.lru import remember
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ElementRangeError,
    GpuError,
    KernelError,
)
from gpu_executor.kernel import ElementType, Grid, Kernel, Shape, to_native
from gpu_executor.kernel.arguments import Argument, describe_dtype, have_same_layout
from gpu_executor.kernel.declaration import parse_grid
from gpu_executor.kernel.parameters import NO_VALUES, ParameterLayout, ParameterValues
from gpu_executor.kernels.catalogue import find_field_operation

Array = np.ndarray[Any, np.dtype[Any]]
AnyArray = Array | DeviceArray
NUMPY_OR_DEVICE = (np.ndarray, DeviceArray)


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of a call: its element type, how many elements it has, and its access."""

    type: ElementType
    count: int
    is_input: bool = True
    is_output: bool = False
    nbytes: int = field(init=False, repr=False, compare=False)
    """The bytes of all elements."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", self.count * self.type.nbytes)

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
    """The push constants that the function of the kernel's `push` computes from the shapes."""
    grid: Grid | None = None
    """The work-groups; None: one invocation for each of `invocations`, or a call sets the grid."""
    invocations: int = 0
    scratch_bytes: int = 0
    inputs: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    """The operands that the caller passes."""
    outputs: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    """The operands that the caller gets back."""
    result_bytes: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The bytes of each output."""
    passed: tuple[Operand, ...] = field(init=False, repr=False, compare=False)
    """The inputs, then the outputs."""
    has_odd_sizes: bool = field(init=False, repr=False, compare=False)
    """Whether the bytes of any of them are no multiple of four."""
    reads_then_writes: bool = field(init=False, repr=False, compare=False)
    """Whether the operands are pure inputs, then pure outputs."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Signatures are dictionary keys on the path of every call: hash once.
        identity = self.kernel, self.count, self.operands, self.is_flat, self.results
        inputs = tuple(operand for operand in self.operands if operand.is_input)
        outputs = tuple(operand for operand in self.operands if operand.is_output)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "outputs", outputs)
        object.__setattr__(self, "passed", inputs + outputs)
        odd = any(operand.nbytes % 4 for operand in self.operands)
        object.__setattr__(self, "has_odd_sizes", odd)
        object.__setattr__(self, "result_bytes", tuple(output.nbytes for output in outputs))
        object.__setattr__(self, "reads_then_writes", inputs + outputs == self.operands)
        object.__setattr__(self, "_hash", hash(identity))

    def __hash__(self) -> int:
        return self._hash

    def make_call(self, arrays: Sequence[AnyArray], params: Any = None) -> Call:
        """A call of this signature on arrays that have it. Its outputs are not allocated yet."""
        values = self.parameters.default_values if params is None else None
        if values is None:
            values = self.parameters.encode(params)
        if values.given_count and self.kernel.split == "elements":
            values = self._check_given_count(values)
        call = Call(self, arrays if self.is_flat else self._flatten(arrays))
        call.values = values
        if type(arrays) is TypedWords:
            call.typed_words = arrays
        if self.kernel.grid_takes_params:
            call.grid = self._compute_grid(arrays, params)
        return call

    def _check_given_count(self, values: ParameterValues) -> ParameterValues:
        """Refuse another number of elements for a call that may run in chunks: each chunk would
        get that number."""
        kernel = self.kernel
        assert kernel.count is not None
        (given,) = struct.unpack("<I", values.given_count)
        if given != self.count:
            raise ArgumentTypeError(
                f"{kernel.name}: params gives {kernel.count.name!r} the value {given}, and the "
                f"arrays have {self.count} elements; a kernel with split='elements' gets the "
                "number of elements of each chunk. Leave it out, or make the kernel with "
                "count=False or split='whole'"
            )
        return values._replace(given_count=b"")

    def _flatten(self, arrays: Sequence[AnyArray]) -> Sequence[AnyArray]:
        return [
            array if isinstance(array, DeviceArray) else _flatten(np.asarray(array), operand)
            for array, operand in zip(arrays, self.inputs, strict=True)
        ]

    def _compute_grid(self, arrays: Sequence[AnyArray], params: Any) -> Grid:
        assert callable(self.kernel.grid)
        keywords = self.parameters.as_keywords(params)
        shapes = [array.shape for array in arrays]
        grid = _call_rule(self.kernel, "grid", self.kernel.grid, shapes, params=keywords)
        return parse_grid(self.kernel.name, grid)


class Call:
    """A kernel on arrays. Inputs and outputs have shape (elements, *element shape)."""

    __slots__ = (
        "buffer_ranges", "grid", "imports", "in_place", "inputs", "job", "outputs", "results",
        "signature", "typed_words", "values",
    )  # fmt: skip

    def __init__(self, signature: Signature, inputs: Sequence[Any]) -> None:
        self.signature = signature
        self.inputs = inputs
        """The arrays of the operands that the caller passes."""
        self.values: ParameterValues = NO_VALUES
        self.grid: Grid | None = None
        """The work-groups, where they depend on the parameters."""
        self.job: int | None = None
        """Its index in a batch, None outside batches."""
        self.buffer_ranges: Any = None
        """Where the backend can use the arrays in place; None where it copies all of them."""
        self.in_place = False
        """Whether a result overwrites an array that the call reads, so that the call cannot be
        repeated."""
        self.imports: Any = None
        """What the backend keeps alive for the call because its buffer ranges lie in it."""
        self.typed_words: TypedWords | None = None
        """The arguments, if the caller gets the result as a typed array."""
        self.outputs: list[Any] = []
        self.results: list[Any] = []
        """The outputs in the shapes that the caller gets, over the same memory."""

    def make_outputs(self) -> None:
        """Allocate the outputs if the call has none yet. Backends do it while the device works."""
        if not self.results:
            self.set_outputs([np.empty(shape, dtype) for shape, dtype in self.signature.results])

    def use_outputs(self, given: Any, *, on_device: bool = False) -> None:
        """Check the caller's `out` (an array, or a tuple of several) and write into it.

        `on_device` allows device arrays.
        """
        if self.typed_words is not None:
            words, given = self.typed_words.use_out(self.signature.kernel.name, given)
            self.typed_words = words if isinstance(words, TypedWords) else None
        arrays = _check_outputs(self.signature, given, NUMPY_OR_DEVICE if on_device else np.ndarray)
        if isinstance(arrays[0], DeviceArray):
            self.set_device_outputs(arrays)
        else:
            self.set_outputs(arrays)
        self.in_place = _check_overlaps(self.signature, self.inputs, self.outputs)

    def set_outputs(self, results: list[Any]) -> None:
        """Write into these arrays, which have the signature's shapes and dtypes."""
        self.outputs = self.results = results
        if not self.signature.is_flat:
            self.outputs = [
                _flatten_output(self.signature.kernel, index, array, output)
                for index, (array, output) in enumerate(
                    zip(results, self.signature.outputs, strict=True)
                )
            ]

    def touches_device(self) -> bool:
        """Whether any of its arrays is a device array."""
        for array in self.inputs:  # on the path of every call
            if type(array) is not np.ndarray and isinstance(array, DeviceArray):
                return True
        # All results are of one kind.
        return bool(self.results) and isinstance(self.results[0], DeviceArray)

    def set_device_outputs(self, results: Sequence[DeviceArray]) -> None:
        """Write into these device arrays and leave the results in them."""
        self.results = self.outputs = list(results)

    def fetch_results(self) -> Any:
        """Fetch the results that are device arrays, and return what the caller gets."""
        self.results = [
            each.numpy() if isinstance(each, DeviceArray) else each for each in self.results
        ]
        return self.result()

    def result(self) -> Any:
        """What the caller gets: the output array, or a tuple where there are several."""
        if self.typed_words is not None:
            return self.typed_words.wrap(self.results[0])
        return self.results[0] if len(self.results) == 1 else tuple(self.results)


def name_job(run: Callable[[Call], Any], call: Call) -> Any:
    """What `run` returns for a call of a batch; errors name its job."""
    assert call.job is not None
    try:
        return run(call)
    except ElementRangeError as error:
        raise error.in_job(call.job) from None
    except GpuError as error:
        error.args = (f"job {call.job}: {error}",)
        raise


def check(
    kernel: Kernel, arrays: Sequence[Any], *, on_device: bool = True, out_shape: Any = None
) -> Signature:
    """Check the arrays against the kernel; raises `GpuError` for the first that does not fit.

    `on_device=False` refuses device arrays, for backends that cannot use them. `out_shape` takes
    the place of the kernel's.
    """
    _check_kernel(kernel, arrays)
    if not on_device:
        _check_on_host(kernel, arrays)
    passed = [argument for argument in kernel.arguments if argument.is_input]
    inputs = [
        _check_input(kernel, index, array, argument)
        for index, (array, argument) in enumerate(zip(arrays, passed, strict=True))
    ]
    if kernel.split == "elements":
        _check_equal_shapes(kernel, arrays, inputs)
    else:
        _check_not_empty(kernel, inputs)
    actual, operands = _derive_operands(kernel, arrays, inputs, out_shape)
    is_flat = all(type(array) in (np.ndarray, DeviceArray) for array in arrays) and all(
        shape == (operand.count, *operand.type.shape) and operand.type.dtype.names is None
        for shape, operand in zip(actual, operands, strict=True)
    )
    results = tuple(
        (shape, operand.type.dtype)
        for shape, operand in zip(actual, operands, strict=True)
        if operand.is_output
    )
    count = inputs[0].count if inputs else operands[0].count
    shapes = [array.shape for array in arrays]
    shape_words = _pack_shape_words(kernel, shapes)
    return Signature(
        kernel,
        count,
        operands,
        is_flat,
        results,
        kernel.make_parameters(shape_words),
        shape_words,
        _compute_static_grid(kernel, shapes),
        count if kernel.split == "elements" else max(operand.count for operand in operands),
        4 * _count_scratch_words(kernel, shapes),
    )


def _check_kernel(kernel: Any, arrays: Sequence[Any]) -> None:
    check_is_kernel(kernel)
    if len(arrays) != kernel.inputs:
        taken = ", ".join(str(each) for each in kernel.arguments if each.is_input)
        raise ArgumentTypeError(
            f"{kernel.name} takes {count_nouns(kernel.inputs, 'array')} and got {len(arrays)}"
            + (f"; it takes {taken}" if taken else "")
        )


def _compute_static_grid(kernel: Kernel, shapes: Sequence[Shape]) -> Grid | None:
    """The work-groups, where the shapes alone determine them."""
    if kernel.grid is None or kernel.grid_takes_params:
        return None
    grid = kernel.grid
    if callable(grid):
        grid = _call_rule(kernel, "grid", grid, shapes)
    return parse_grid(kernel.name, grid)


def _pack_shape_words(kernel: Kernel, shapes: Sequence[Shape]) -> bytes:
    if kernel.push_of is None:
        return b""
    words = _parse_shape_words(kernel, _call_rule(kernel, "push", kernel.push_of, shapes))
    packed = struct.pack(f"<{len(words)}I", *words)
    room = kernel.interface.push_constant_bytes - len(kernel.push) - kernel.count_bytes
    if kernel.spirv and len(packed) > room:
        raise KernelError(
            f"kernel {kernel.name!r}: its function push returned {len(words)} words; its "
            f"code declares {room // 4} after the element count and the bytes of push"
        )
    return packed


def _count_scratch_words(kernel: Kernel, shapes: Sequence[Shape]) -> int:
    if kernel.scratch is None:
        return 0
    words: int = _call_rule(kernel, "scratch", kernel.scratch, shapes)
    return words


def _call_rule(
    kernel: Kernel, name: str, rule: Callable[..., Any], shapes: Sequence[Shape], **keywords: Any
) -> Any:
    """Call a function of the kernel's declaration on the shapes of the passed arrays. What it
    raises becomes a `KernelError` that names the function; errors of the package pass."""
    try:
        return rule(*shapes, **keywords)
    except (GpuError, MemoryError):
        raise
    except Exception as error:
        given = ", ".join(map(str, shapes)) + "".join(f", {key}=..." for key in keywords)
        raise KernelError(
            f"kernel {kernel.name!r}: its function {name} raised {type(error).__name__}: {error}; "
            f"it was called with the shapes of the passed arrays: {name}({given})"
        ) from error


def _parse_shape_words(kernel: Kernel, returned: Any) -> list[int]:
    """Check what the function of a kernel's `push` returned: numbers that fit 32-bit words."""
    try:
        words = [operator.index(word) for word in returned]
        fits = all(0 <= word < 1 << 32 for word in words)
    except TypeError:
        fits = False
    if not fits:
        raise KernelError(
            f"kernel {kernel.name!r}: its function push returned {returned!r}; it must return a "
            "sequence of whole numbers from 0 to 2^32 - 1"
        )
    return words


def _check_on_host(kernel: Kernel, arrays: Sequence[Any]) -> None:
    for index, array in enumerate(arrays):
        if isinstance(array, DeviceArray):
            raise ArgumentTypeError(
                f"{kernel.name}: argument {index} is a device array, which this backend cannot "
                "use; copy it to the host with .numpy()"
            )


# --- scalars, lists and typed arrays ---


def as_arrays(kernel: Kernel, arrays: Sequence[Any]) -> Sequence[Any]:
    """The arrays, with scalars and lists among them converted to the kernel's dtypes, and with the
    words of typed arrays: `TypedWords` if the result is a typed array too."""
    for array in arrays:
        if not isinstance(array, NUMPY_OR_DEVICE):
            return _convert_arrays(kernel, arrays)
    return arrays


def _convert_arrays(kernel: Kernel, arrays: Sequence[Any]) -> Sequence[Any]:
    _check_kernel(kernel, arrays)
    typed = [isinstance(array, TypedArray) for array in arrays]
    if any(typed) and find_field_operation(kernel) is not None:
        if not all(typed):
            raise ArgumentTypeError(
                f"{kernel.name}: argument {typed.index(True)} is an array of elements, and "
                f"argument {typed.index(False)} is not, so its form is not known; make it one with "
                "field.encode(ints) or field.from_words(words, form)"
            )
        converted = [array.convert_for(kernel) for array in arrays]
        return TypedWords([array.data for array in converted], converted[0])
    passed = [argument for argument in kernel.arguments if argument.is_input]
    return [
        _convert(kernel, index, array, argument.type.dtype)
        if isinstance(array, list | tuple | Number | np.generic)
        else array.convert_for(kernel).data
        if isinstance(array, TypedArray)
        else array
        for index, (array, argument) in enumerate(zip(arrays, passed, strict=True))
    ]


def _convert(kernel: Kernel, index: int, value: Any, dtype: np.dtype[Any]) -> Array:
    """A scalar or a list as an array of that dtype; refuses a value that the dtype cannot hold."""
    where = f"{kernel.name}: argument {index}"
    if dtype.names is not None:
        raise ArgumentTypeError(
            f"{where} is {describe(value)}; it takes a NumPy array of {describe_dtype(dtype)}"
        )
    try:
        found = np.asarray(value)
        if dtype.kind in "iu" and found.dtype.kind == "f":
            # NumPy makes floats of integers below 2^63 beside others above, which rounds them.
            found = np.asarray(value, dtype=object)
        with np.errstate(all="ignore"):
            converted = found.astype(dtype)
    except OverflowError:
        raise ArgumentTypeError(
            f"{where} is {describe(value)} with a value that {dtype} cannot hold"
        ) from None
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"{where} is {describe(value)} that makes no array of {describe_dtype(dtype)}"
        ) from None
    kept = (
        bool(np.all(np.isfinite(converted) | ~np.isfinite(found)))
        if dtype.kind in "fc" and found.dtype.kind in "biuf" + ("c" if dtype.kind == "c" else "")
        else dtype.kind in "biu" and converted.tolist() == found.tolist()
    )
    if not kept:
        raise ArgumentTypeError(
            f"{where} is {describe(value)} with a value that {dtype} cannot hold"
        )
    return converted


def arrays_to_explain(kernel: Kernel, arrays: Sequence[Any]) -> Sequence[Any]:
    """The arrays whose call `explain` describes: those that it was given, or placeholders without
    memory if it was given one integer, the number of elements."""
    check_is_kernel(kernel)
    # A number that is no integer is an argument only of a kernel that takes one array.
    kind = Integral if kernel.inputs == 1 else Number
    if len(arrays) != 1 or not isinstance(arrays[0], kind):
        return as_arrays(kernel, arrays)
    count = parse_count("explain", arrays[0])
    types = (argument.type for argument in kernel.arguments if argument.is_input)
    return [np.broadcast_to(np.zeros((), each.dtype), (count, *each.shape)) for each in types]


# --- arrays ---


def _check_input(kernel: Kernel, index: int, array: Any, argument: Argument) -> Operand:
    where = f"{kernel.name}: argument {index}"
    if argument.name:
        where += f" ({argument.name})"
    type_ = argument.type
    if not isinstance(array, np.ndarray | DeviceArray):
        advice = "it takes a NumPy array"
        if isinstance(getattr(array, "array", None), np.ndarray):  # what `import_array` returns
            advice += ": pass its .array"
        raise ArgumentTypeError(f"{where} is {describe(array)}; {advice}")
    if is_masked(array):
        raise ArgumentTypeError(
            f"{where} is a masked array, and kernels ignore masks; pass its .data, or "
            ".filled(value)"
        )
    if not have_same_layout(to_native(array.dtype), type_.dtype):
        advice = ""
        if type_.dtype.names is None:
            convert = f".astype(np.{type_.dtype})"
            if isinstance(array, DeviceArray):
                convert = f"gpu.to_device(array.numpy(){convert})"
            advice = f" (convert with {convert})"
        raise ArgumentTypeError(
            f"{where} has dtype {describe_dtype(array.dtype)}; it takes "
            f"{describe_dtype(type_.dtype)}{advice}"
        )
    leading = array.ndim - len(type_.shape)
    if leading < 0 or array.shape[leading:] != type_.shape:
        wanted = ", ".join(["n", *map(str, type_.shape)])
        raise ArgumentShapeError(f"{where} has shape {array.shape}; it takes ({wanted})")
    count = math.prod(array.shape[:leading])
    if argument.length is not None and count != argument.length:
        raise ArgumentShapeError(
            f"{where} has {count} elements; the code has a fixed length of {argument.length}"
        )
    return Operand(type_, count, True, argument.is_output)


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
                "least one element: do not call it for empty arrays"
            )


def _derive_operands(
    kernel: Kernel, arrays: Sequence[Array], inputs: Sequence[Operand], out_shape: Any
) -> tuple[list[Shape], tuple[Operand, ...]]:
    """The shapes and operands of all arguments, in binding order."""
    passed = iter(zip((array.shape for array in arrays), inputs, strict=True))
    derived = iter(_derive_outputs(kernel, arrays, inputs, out_shape))
    shapes, operands = [], []
    for argument in kernel.arguments:
        shape, operand = next(passed if argument.is_input else derived)
        shapes.append(shape)
        operands.append(operand)
    return shapes, tuple(operands)


def _derive_outputs(
    kernel: Kernel, arrays: Sequence[Array], inputs: Sequence[Operand], out_shape: Any
) -> list[tuple[Shape, Operand]]:
    """The shapes and operands of the pure outputs: from `out_shape`, or with the leading axes of
    argument 0."""
    outputs = [argument for argument in kernel.arguments if argument.access == "out"]
    rule = kernel.out_shape if out_shape is None else out_shape
    if out_shape is not None and (kernel.split == "elements" or not outputs):
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape is for kernels with split='whole' that have an output of "
            "their own"
        )
    if rule is not None and outputs:
        returned = rule
        if callable(rule):
            returned = _call_rule(kernel, "out_shape", rule, [array.shape for array in arrays])
        shapes = _parse_out_shape(kernel, outputs, returned)
    elif inputs or all(argument.length is not None for argument in outputs):
        leading = _get_leading_shape(arrays[0], inputs[0].type) if inputs else ()
        shapes = [
            (leading if argument.length is None else (argument.length,)) + argument.type.shape
            for argument in outputs
        ]
    else:
        raise ArgumentShapeError(
            f"{kernel.name} has no inputs, so nothing says how large its outputs are; give "
            "out_shape="
        )
    return [
        (shape, Operand(type_, math.prod(shape[: len(shape) - len(type_.shape)]), False, True))
        for shape, type_ in zip(shapes, (argument.type for argument in outputs), strict=True)
    ]


def _parse_out_shape(kernel: Kernel, outputs: Sequence[Argument], returned: Any) -> list[Shape]:
    """The shapes that `out_shape` gives: one shape, or one for each output."""
    several = isinstance(returned, list) or (
        isinstance(returned, tuple) and any(isinstance(each, tuple | list) for each in returned)
    )
    given = returned if several or len(outputs) > 1 else [returned]
    try:
        shapes = [_parse_lengths(shape) for shape in given]
    except TypeError:
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape is {returned!r}; it must be a shape, or a list of "
            f"{len(outputs)} shapes"
        ) from None
    if len(shapes) != len(outputs):
        raise ArgumentShapeError(
            f"{kernel.name}: out_shape is {len(shapes)} shapes for {len(outputs)} outputs"
        )
    for shape, argument in zip(shapes, outputs, strict=True):
        own = argument.type.shape
        if min(shape, default=1) < 1:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape is {shape}; every axis must be at least 1"
            )
        if own and shape[-len(own) :] != own:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape is {shape}; its last axes must be {own}"
            )
        count = math.prod(shape[: len(shape) - len(own)])
        if argument.length is not None and count != argument.length:
            raise ArgumentShapeError(
                f"{kernel.name}: out_shape is {shape}; the code has a fixed length of "
                f"{argument.length}"
            )
    return shapes


def _parse_lengths(shape: Any) -> Shape:
    """A shape, given as a length or as lengths in an order; raises `TypeError`."""
    if isinstance(shape, Integral):
        return (operator.index(shape),)
    if isinstance(shape, dict | set | frozenset):
        raise TypeError
    return tuple(map(operator.index, shape))


# --- out= and keep= ---


def check_keep(kernel: Kernel, keep: bool | None, out: Any) -> None:
    """Refuse a `keep` that contradicts where the arrays of `out` are."""
    if out is None or keep is None:
        return
    on_device = any(isinstance(array, DeviceArray) for array in list_outputs(out))
    if keep != on_device:
        raise ArgumentTypeError(
            f"{kernel.name}: keep={keep} and out= contradict each other: out has arrays on "
            f"the {'device' if on_device else 'host'}; give one of them"
        )


def _check_outputs(signature: Signature, given: Any, kinds: Any) -> list[Array]:
    kernel = signature.kernel
    if kernel.outputs == 1 and _is_plain_output(given, *signature.results[0]):
        return [given]  # nearly always
    arrays = list(given) if isinstance(given, tuple | list) else [given]
    if len(arrays) != kernel.outputs:
        raise ArgumentTypeError(
            f"{kernel.name} has {count_nouns(kernel.outputs, 'output')} and out has "
            f"{count_nouns(len(arrays), 'array')}"
        )
    on_device = [isinstance(array, DeviceArray) for array in arrays]
    if any(on_device) and not all(on_device):
        raise ArgumentTypeError(
            f"{kernel.name}: out has NumPy arrays and device arrays; give one kind"
        )
    for index, (array, (shape, dtype)) in enumerate(zip(arrays, signature.results, strict=True)):
        if _is_plain_output(array, shape, dtype):
            continue
        if isinstance(array, TypedArray):
            raise ArgumentTypeError(
                f"{kernel.name}: out {index} is {describe(array)}, and the result has no such type "
                "unless the kernel is one of that field and its arguments are arrays of the field "
                f"too; pass a NumPy array of {dtype}"
            )
        is_array = isinstance(array, kinds)
        if not is_array or not have_same_layout(array.dtype, dtype):
            found = f"has dtype {array.dtype}" if is_array else f"is {describe(array)}"
            raise ArgumentTypeError(
                f"{kernel.name}: out {index} {found}; it must be a NumPy array of {dtype}"
            )
        if array.shape != shape:
            raise ArgumentShapeError(
                f"{kernel.name}: out {index} has shape {array.shape}; it must be {shape}"
            )
        if isinstance(array, DeviceArray):
            array = array.make_pattern()  # noqa: PLW2901 - it overlaps itself as the array does
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


def _is_plain_output(array: Any, shape: Shape, dtype: np.dtype[Any]) -> bool:
    """Whether it is a contiguous NumPy array for a result of that shape and dtype."""
    if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
        return False
    flags = array.flags
    return flags.writeable and flags.c_contiguous


def _check_overlaps(signature: Signature, inputs: Sequence[Any], results: Sequence[Array]) -> bool:
    """Refuse results that overwrite what is still to be read; return whether a call is in place.

    A result may be the very array of its own in-out argument. In a kernel without in-out arguments
    it may be the very array of any input: a backend that binds the caller's memory then gives the
    output memory of its own, unless the kernel may run in place (`Kernel.in_place_bindings`).
    """
    name = signature.kernel.name
    passed, returned = signature.inputs, signature.outputs
    in_place = False
    for index, target in enumerate(results):
        for number, source in enumerate(inputs):
            if not _may_overlap(target, source):
                continue
            own = returned[index] is passed[number]
            has_inout = any(operand.is_output for operand in passed)
            if not _is_same_view(target, source) or (has_inout and not own):
                raise ArgumentShapeError(
                    f"{name}: out {index} overlaps argument {number}"
                    + (
                        ", which is not its own in-out argument; "
                        if has_inout and not own
                        else " without being the same array; "
                    )
                    + "pass that array itself or one with memory of its own"
                )
            in_place = True
        for number, other in enumerate(results[:index]):
            if _may_overlap(target, other):
                raise ArgumentShapeError(
                    f"{name}: out {index} overlaps out {number}; each output needs memory of its "
                    "own"
                )
    return in_place


def _may_overlap(a: AnyArray, b: AnyArray) -> bool:
    """Whether two arrays on the host, or two on a device, share an element."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and may_overlap(a, b)
    if isinstance(b, np.ndarray):
        return False
    return a.storage is b.storage and may_overlap(a.make_pattern(), b.make_pattern())


def _is_same_view(a: AnyArray, b: AnyArray) -> bool:
    one, other = (x.make_pattern() if isinstance(x, DeviceArray) else x for x in (a, b))
    return is_same_view(one, other)


def _flatten(array: Array, operand: Operand) -> Array:
    """An array with shape (elements, *element shape); a copy where no view has that shape."""
    if operand.type.dtype.names is not None:
        array = array.view(operand.type.copied_dtype)
    return array.reshape(operand.count, *operand.type.shape)


def copy_elements(source: Array, target: Array) -> None:
    """Copy elements to an array of the same layout, whose structs may have other names for their
    fields. Numbers are never converted."""
    if target.dtype.names is not None:
        raw = np.dtype(f"V{target.dtype.itemsize}")
        source, target = source.view(raw), target.view(raw)
    np.copyto(target, source, casting="equiv")


def _flatten_output(kernel: Kernel, index: int, array: Array, operand: Operand) -> Array:
    """A view of an output with shape (elements, *element shape)."""
    flat = _flatten(array, operand)
    if flat.size and not np.may_share_memory(flat, array):
        raise ArgumentShapeError(
            f"{kernel.name}: out {index} has shape {array.shape} and strides {array.strides}; an "
            "out array with several leading axes must be contiguous: pass a contiguous one and "
            "copy from it"
        )
    return flat


def make_shape_key(out_shape: Any) -> Hashable:
    """The `out_shape` of a call as a hashable value. What is no shape gets a value of its own, so
    that it is never taken for a shape that it is equal to, as 4.0 is to 4."""
    if out_shape is None:
        return None
    has_axes = isinstance(out_shape, np.ndarray) and out_shape.ndim > 0
    if has_axes or isinstance(out_shape, list | tuple):
        return isinstance(out_shape, list), *map(make_shape_key, out_shape)
    if isinstance(out_shape, Integral):
        return operator.index(out_shape)
    key: Hashable = out_shape if callable(out_shape) else object()
    return key


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

    def get(self, kernel: Kernel, arrays: Sequence[AnyArray], out_shape: Any = None) -> Signature:
        """The signature of a call; raises as `check` does."""
        try:
            key = (id(kernel), *describe_arrays(arrays), make_shape_key(out_shape))
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
        keep: bool | None = None,
    ) -> Call:
        """A job of a batch as a call; errors begin with the job's index."""
        try:
            check_keep(kernel, keep, out)
            if not isinstance(job, tuple | list):
                raise ArgumentTypeError(f"a job is a tuple of arrays, not {describe(job)}")
            job = as_arrays(kernel, job)
            call = self.get(kernel, job, out_shape).make_call(job, params)
            call.job = index
            if out is not None:
                call.use_outputs(out, on_device=self._on_device)
        except GpuError as error:
            error.args = (f"job {index}: {error}",)
            raise
        return call
