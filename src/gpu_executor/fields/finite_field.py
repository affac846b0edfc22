"""`FiniteField` and `FiniteFieldArray`: what prime fields and extension fields have in common.

An operation checks its operands, converts them to the form in which the field computes, and hands
their words to `ops`. A kind of field defines its elements, and which functions of `ops` compute.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, cast

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.arguments import describe, is_masked, iterate, parse_shape
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.common.value_keys import ByIdentity
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    ElementDivisionError,
    ElementRangeError,
    NoSquareRootError,
)
from gpu_executor.fields import square_roots
from gpu_executor.fields.element_array import (
    ElementArray,
    check_choice,
    check_form,
    explain_single_form,
)
from gpu_executor.fields.layout_array import LayoutArray, check_one_place, parse_axes
from gpu_executor.fields.numpy_functions import (
    SHAPE_FUNCTIONS,
    Functions,
    call_numpy_function,
    outer,
    pad,
)
from gpu_executor.ops import elementwise, indexing
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.primes import ElementLayout, Form, Prime, PrimeOrExtension
from gpu_executor.primes.extension import Scalar

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

A = TypeVar("A", bound="FiniteFieldArray")

Operand = Any
"""An array of the field, or what stands for one element, such as an integer."""
RowOperation = Callable[[ElementData, int, int], ElementData]
"""Elements, the number of rows and the number of columns, to elements."""
Axes = int | Sequence[int] | None
"""An axis or several; None: all of them."""


class FiniteFieldArray(ElementArray):
    """Elements of a finite field, on the host or on a device.

    It has NumPy's operators, methods and indexing where they have a meaning. An integer stands for
    an element. The array knows its form, and operations convert it where they need another one.
    """

    __slots__ = ("field",)

    field: FiniteField[Self]

    def __init__(self, field: FiniteField[Any], data: ElementData, form: Form) -> None:
        """An array over words that are not checked; `Field.from_words` checks them.

        Args:
            field (Field or ExtensionField): The field of the elements.
            data (numpy.ndarray or DeviceArray): Their words, each element below the modulus.
            form (str): The form of the words, "canonical" or "montgomery".
        """
        self.field = field
        self.data = data
        self.form = form
        self.shape = data.shape[: len(data.shape) - len(field.layout.element_shape)]
        """In elements: the columns of an element are not an axis."""

    @property
    def layout(self) -> PrimeOrExtension:
        return self.field.layout

    @property
    def prime(self) -> Prime:
        return self.field.prime

    def _with(self, data: ElementData, form: Form | None = None) -> Self:
        return type(self)(self.field, data, form or self.form)

    def join(self, arrays: Sequence[Any], axis: int) -> Self:
        """Arrays one behind the other along an axis, of this field or of one that contains it."""
        given = list(iterate("what is joined", arrays))
        found: Self = _find_field([self, *given]).concatenate(given, axis=axis)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words: an array on a device comes back on the host."""
        return type(self), (self.field, np.array(self.words()), self.form)

    # --- in graphs and calls of kernels ---

    def wrap_like(self, data: ElementData) -> Self:
        """An array of the same field and form over other words."""
        return self._with(data)

    def convert_like(self, given: Any) -> ElementData:
        """The words of another array of this field and shape, in this array's form."""
        array = self.field._check(given)
        if array.shape != self.shape:
            raise ArgumentShapeError(
                f"an array of shape {self.shape} is expected; got one of shape {array.shape}"
            )
        return array.in_form(self.form).data

    @property
    def type_key(self) -> Hashable:
        """What distinguishes arrays with the same words."""
        return self.field, self.form

    # --- operators ---

    def _find_field(self, other: Any) -> FiniteField[Self]:
        """The field of a binary operator: that of the other operand if it is an extension of this
        array's field."""
        field: Any = self.field
        if isinstance(other, FiniteFieldArray) and other.field is not field:
            given: Any = other.field
            field = given if given.contains(field) else field
        found: FiniteField[Self] = field
        return found

    def __pos__(self) -> Self:
        return self.copy()

    def __neg__(self) -> Self:
        return self.field.neg(self)

    def __add__(self, other: Any) -> Self:
        return self._find_field(other).add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._find_field(other).sub(self, other)

    def __rsub__(self, other: Any) -> Self:
        return self.field.add(self.field.neg(self), other)

    def __mul__(self, other: Any) -> Self:
        kind = type(other)
        if kind is not type(self) and kind is not int and _is_of_other_kind(other):
            return NotImplemented  # points are multiplied by their curve
        return self._find_field(other).mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Self:
        return self._find_field(other).div(self, other)

    def __rtruediv__(self, other: Any) -> Self:
        return self.field.div(other, self)

    def __pow__(self, exponent: int) -> Self:
        return self.field.power(self, exponent)

    def __matmul__(self, other: Any) -> Self:
        return self._find_field(other).matmul(self, other)

    def __rmatmul__(self, other: Any) -> Self:
        return self.field.matmul(other, self)

    # --- operators that change the array itself ---

    def __iadd__(self, other: Any) -> Self:
        return self._overwrite(self + other)

    def __isub__(self, other: Any) -> Self:
        return self._overwrite(self - other)

    def __imul__(self, other: Any) -> Self:
        return self._overwrite(self * other)

    def __itruediv__(self, other: Any) -> Self:
        return self._overwrite(self / other)

    def __ipow__(self, exponent: int) -> Self:
        return self._overwrite(self**exponent)

    def __imatmul__(self, other: Any) -> Self:
        return self._overwrite(self @ other)

    def _overwrite(self, result: Any) -> Self:
        """Copy a result of the array's own shape to the array's memory, which views share."""
        if not isinstance(result, FiniteFieldArray):
            raise ArgumentTypeError(
                f"{describe(result)} cannot be written to an array of {self.field.name}"
            )
        if result.field is not self.field and result.field != self.field:
            raise ArgumentTypeError(
                f"a result of {result.field.name} cannot be written to an array of "
                f"{self.field.name}"
            )
        if result.shape != self.shape:
            raise ArgumentShapeError(
                f"{self.field.name}: a result of shape {result.shape} cannot be written to an "
                f"array of shape {self.shape}"
            )
        indexing.copy_items(self.layout, result.in_form(self.form).data, self.data)
        return self

    def __setitem__(self, item: Any, values: Any) -> None:
        """Write an array, a single element, or nested lists or a NumPy array to elements.

        The index is one of NumPy's, as in `__getitem__`. The values are broadcast.
        """
        given = self.field._load_values(values, self).in_form(self.form)
        indexing.set_items(self.layout, self.data, item, given.data)

    # --- comparison ---

    def __eq__(self, other: object) -> Any:
        """Element by element, as an array of booleans on the host.

        Integers and what else stands for elements are compared modulo p; booleans and floats count
        as the integers that they are equal to. Nothing else equals an element; a device array of
        integers is refused.
        """
        is_refused = isinstance(other, FiniteFieldArray | DeviceArray)
        other = _to_integers(other)
        field = self._find_field(other)
        try:
            values = field._load_values(other, self)
        except (ArgumentTypeError, ArgumentShapeError):
            if is_refused:
                raise
            return np.zeros(self.shape, np.bool_)
        return field.equal(self, values)

    def __ne__(self, other: object) -> Any:
        """Element by element, as an array of booleans on the host."""
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # --- over many elements ---

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """The sum over an axis or several, by default over all of them.

        Args:
            axis (int or tuple): The axis or axes; None for all of them.
            keepdims (bool): Whether the result keeps these axes, with the length 1.
        """
        return self.field.sum(self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, *, keepdims: bool = False) -> Self:
        """The product over an axis or several, by default over all of them.

        Args:
            axis (int or tuple): The axis or axes; None for all of them.
            keepdims (bool): Whether the result keeps these axes, with the length 1.
        """
        return self.field.prod(self, axis=axis, keepdims=keepdims)

    def cumsum(self, axis: int | None = None) -> Self:
        """Every element plus all elements before it along an axis.

        Args:
            axis (int): The axis; None for all elements along one axis, as in NumPy.
        """
        return self._combine_prefixes(self.field.prefix_sum, axis)

    def cumprod(self, axis: int | None = None) -> Self:
        """Every element times all elements before it along an axis.

        Args:
            axis (int): The axis; None for all elements along one axis, as in NumPy.
        """
        return self._combine_prefixes(self.field.prefix_product, axis)

    def _combine_prefixes(self, combine: Callable[[Self], Self], axis: int | None) -> Self:
        """`combine` along an axis instead of the last one."""
        if axis is None:
            return combine(self.ravel())
        at = parse_axes(as_int(axis, "axis"), self.shape)[0]
        order = list(range(self.ndim))
        order[at], order[-1] = order[-1], order[at]
        return combine(self.transpose(*order)).transpose(*order)

    def dot(self, other: Any) -> Self:
        """The product by the rules of `np.dot`: over the last axis of this array and the last but
        one of the other.

        Args:
            other (array or int): The right factor; an element alone multiplies every element.
        """
        return self._find_field(other).dot(self, other)

    def vecdot(self, other: Any, axis: int = -1) -> Self:
        """The sums of products along an axis, by the rules of `np.vecdot`.

        Args:
            other (array): The right factor; the other axes of both are broadcast.
            axis (int): The axis, of both arrays.
        """
        return self._find_field(other).vecdot(self, other, axis=axis)

    def __array_ufunc__(self, function: Any, method: str, *operands: Any, **options: Any) -> Any:
        """NumPy's operators, `np.matmul` and `np.vecdot`; any other ufunc raises TypeError: it
        would compute on words."""
        compute = UFUNCS.get(function)
        if compute is None or method != "__call__":
            return NotImplemented
        taken = {"axis"} if function.__name__ == "vecdot" else set()
        if refused := sorted(set(options) - taken):
            raise ArgumentTypeError(
                f"np.{function.__name__} of {describe(self)} takes no option {', '.join(refused)}"
            )
        return compute(_find_field(operands), *operands, **options)

    def __array_function__(
        self, function: Any, _types: Any, arguments: Any, options: dict[str, Any]
    ) -> Any:
        """NumPy's functions that have a meaning for elements; any other raises TypeError."""
        return call_numpy_function(NUMPY_FUNCTIONS, self, function, arguments, options)


NUMPY_FUNCTIONS: Functions = {
    **SHAPE_FUNCTIONS,
    np.sum: lambda a, axis=None, keepdims=False: a.sum(axis, keepdims=keepdims),
    np.prod: lambda a, axis=None, keepdims=False: a.prod(axis, keepdims=keepdims),
    np.dot: lambda a, b: _find_field([a, b]).dot(a, b),
    np.cumsum: lambda a, axis=None: a.cumsum(axis),
    np.cumprod: lambda a, axis=None: a.cumprod(axis),
    np.outer: outer,
    np.pad: pad,
    np.where: lambda condition, x, y: _find_field([x, y]).where(condition, x, y),
}

UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: lambda field, a, b: field.add(a, b),
    np.subtract: lambda field, a, b: field.sub(a, b),
    np.multiply: lambda field, a, b: field.mul(a, b),
    np.divide: lambda field, a, b: field.div(a, b),
    np.power: lambda field, a, exponent: field.power(a, exponent),
    np.matmul: lambda field, a, b: field.matmul(a, b),
    np.positive: lambda _field, a: +a,
    np.negative: lambda field, a: field.neg(a),
    np.square: lambda field, a: field.square(a),
    np.equal: lambda _field, a, b: a == b if isinstance(a, FiniteFieldArray) else b == a,
    np.not_equal: lambda _field, a, b: a != b if isinstance(a, FiniteFieldArray) else b != a,
}
"""NumPy's functions on arrays of a field, one operand of which is such an array. NumPy calls them
for its own operators too, such as that of `np.int64(2) * x`."""
if hasattr(np, "vecdot"):  # NumPy 2
    UFUNCS[np.vecdot] = lambda field, a, b, axis=-1: field.vecdot(a, b, axis=axis)


def _to_integers(values: Any) -> Any:
    """Booleans and whole floats as the integers that they are equal to, in nested lists and arrays
    too; everything else as it is."""
    if isinstance(values, bool | np.bool_) or (
        isinstance(values, float | np.floating) and values.is_integer()
    ):
        return int(values)
    if isinstance(values, list | tuple):
        return (list if isinstance(values, list) else tuple)(map(_to_integers, values))
    if isinstance(values, np.ndarray) and values.dtype.kind in "bfO":
        found = np.empty(values.size, np.object_)
        found[:] = [_to_integers(each) for each in values.ravel().tolist()]
        return found.reshape(values.shape)
    return values


def _is_of_other_kind(value: Any) -> bool:
    """Whether a value is an array of elements that are not those of a field."""
    return isinstance(value, LayoutArray) and not isinstance(value, FiniteFieldArray)


def _find_field(arrays: Iterable[Any]) -> FiniteField[Any]:
    """The field of the arrays among what is given; of several fields the one that contains the
    others."""
    fields = [each.field for each in arrays if isinstance(each, FiniteFieldArray)]
    largest: FiniteField[Any] = max(fields, key=lambda field: field.order)
    return largest


class FiniteField(ByIdentity, ABC, Generic[A]):
    """Arithmetic on arrays of elements of a finite field.

    Operations take arrays of this field, and integers for single elements. All operands are in one
    place, on the host or on one device, and so is the result. On a device an operation is
    submitted and returns at once; fetching its result waits for it. Operands of different shapes
    are broadcast by NumPy's rules.
    """

    array_type: type[A]
    """The type of arrays of this kind of field."""
    array_in_words: str
    """The type with its article, for messages."""

    prime: Prime
    """The prime of the field, or of the prime field that it extends."""
    layout: PrimeOrExtension
    """The parameters of the field and the layout of its elements."""

    # --- what a kind of field defines ---

    @property
    @abstractmethod
    def order(self) -> int:
        """The number of elements."""

    @abstractmethod
    def encode(self, values: Any, *, reduce: bool = False) -> A:
        """Elements on the host from Python values.

        Args:
            values (int or list or numpy.ndarray): The values, in nested lists or arrays.
            reduce (bool): Whether integers are taken modulo p and not refused outside of 0 .. p-1.
        """

    @abstractmethod
    def random(
        self,
        shape: int | Sequence[int],
        seed: int | np.random.Generator | None = None,
        *,
        device: Backend | None = None,
    ) -> A:
        """Uniformly distributed elements; not for secrets. A seed gives the same ones everywhere.

        Args:
            shape (int or tuple): The lengths of the axes.
            seed (int or numpy.random.Generator): What determines the elements; None for new ones in
                every call.
            device (Backend): The executor or backend on whose device the elements are; None for
                the host.
        """

    @abstractmethod
    def contains(self, other: FiniteField[Any]) -> bool:
        """Whether the field is an extension of another field.

        Args:
            other (FiniteField): The other field.
        """

    @abstractmethod
    def _parse_scalar(self, operand: Operand) -> Scalar:
        """What stands for one element, as that element; raises for anything else."""

    @abstractmethod
    def _invert_scalar(self, value: Scalar) -> Scalar:
        """1 / value, or 0 for 0."""

    @abstractmethod
    def _make_element(self, value: Scalar, device: ArrayDevice | None) -> ElementData:
        """One element without axes, on the device or on the host."""

    @abstractmethod
    def _describe_difference(self, other: FiniteField[Any]) -> tuple[str, str]:
        """The names of another field and of this one, such that they differ."""

    @abstractmethod
    def _compute_words(
        self, operation: str, operands: list[ElementData], commutes: bool
    ) -> ElementData: ...

    @abstractmethod
    def _compare_words(self, a: ElementData, b: ElementData) -> npt.NDArray[np.bool_]: ...

    @abstractmethod
    def _select_words(
        self, condition: npt.NDArray[np.bool_], a: ElementData, b: ElementData
    ) -> ElementData: ...

    @abstractmethod
    def _invert_words(self, x: ElementData) -> ElementData: ...

    @abstractmethod
    def _sum_rows(self, x: ElementData, rows: int, columns: int) -> ElementData: ...

    @abstractmethod
    def _multiply_rows(self, x: ElementData, rows: int, columns: int) -> ElementData: ...

    @abstractmethod
    def _add_prefixes(self, x: ElementData, rows: int, columns: int) -> ElementData: ...

    @abstractmethod
    def _multiply_prefixes(self, x: ElementData, rows: int, columns: int) -> ElementData: ...

    @abstractmethod
    def _multiply_matrices(self, a: ElementData, b: ElementData) -> ElementData: ...

    @abstractmethod
    def power(self, a: A, exponent: int) -> A:
        """Every element to one power; a negative exponent inverts, and 0 stays 0.

        Args:
            a (array): The elements.
            exponent (int): The power, of any sign.
        """

    @abstractmethod
    def legendre(self, a: A) -> npt.NDArray[np.int8]:
        """1 for squares, -1 for other elements, 0 for 0: an array on the host.

        Args:
            a (array): The elements.
        """

    # --- names ---

    @property
    def name(self) -> str:
        return self.layout.name

    @property
    def modulus(self) -> int:
        """The prime p: integers are taken modulo p."""
        return self.prime.modulus

    @property
    def form(self) -> Form:
        """The form in which the field computes."""
        form: Form = self.prime.form
        return form

    # --- conversion ---

    def __call__(self, values: Any, *, reduce: bool = False) -> A:
        """What `encode` returns: `Fr([1, 2])` is `Fr.encode([1, 2])`.

        Args:
            values (int or list or numpy.ndarray): The values, in nested lists or arrays.
            reduce (bool): Whether integers are taken modulo p and not refused outside of 0 .. p-1.
        """
        return self.encode(values, reduce=reduce)

    def decode(self, array: A) -> npt.NDArray[np.object_]:
        """The elements as Python values, in a NumPy array of the same shape.

        Args:
            array (array): The elements.
        """
        return self._check(array).ints()

    def from_words(self, data: ElementData, form: Form) -> A:
        """Elements from a copy of their words, in the form that the caller states: on the host, or
        on the device that a device array is on.

        Args:
            data (numpy.ndarray | DeviceArray): Words of shape (..., words of an element), each
                element below the modulus.
            form (str): "canonical", as `array.numpy()` has them, or "montgomery".
        """
        self.check_form(form)
        if not isinstance(data, np.ndarray | DeviceArray):
            raise ArgumentTypeError(
                f"{self.name}: words must be a NumPy array or a device array, not "
                f"{type(data).__name__}"
            )
        if is_masked(data):
            raise ArgumentTypeError(
                f"{self.name}: words is a masked array, and fields ignore masks; pass its .data, "
                "or .filled(value)"
            )
        self._check_words(data)

        def make_error(index: int) -> ElementRangeError:
            return ElementRangeError(self.name, 0, index * self.prime.words // self.layout.words)

        # What was checked must not change any more: an operation takes the elements to be below p.
        own = elementwise.copy_checked(self.prime, data, make_error)
        if isinstance(own, DeviceArray) and not own.storage.device.is_recording:
            own.storage.device.check(own)
        return self._wrap(own, form)

    def check_form(self, form: Form) -> None:
        """Raise unless elements of the field have this form.

        Args:
            form (str): "canonical" or "montgomery".
        """
        check_form(form)
        if form == "montgomery" and self.form == "canonical":
            raise ArgumentTypeError(explain_single_form(self.layout))

    def _check_words(self, data: ElementData) -> None:
        """Raise unless the last axes are those of an element, apart from the prime's."""

    def zeros(self, shape: int | Sequence[int]) -> A:
        """Zeros on the host.

        Args:
            shape (int or tuple): The lengths of the axes.
        """
        return self.full(shape, 0)

    def ones(self, shape: int | Sequence[int]) -> A:
        """Ones on the host.

        Args:
            shape (int or tuple): The lengths of the axes.
        """
        return self.full(shape, 1)

    def full(self, shape: int | Sequence[int], value: Operand) -> A:
        """Equal elements on the host; integers are taken modulo p.

        Args:
            shape (int or tuple): The lengths of the axes.
            value (int or tuple): The element.
        """
        lengths = parse_shape(shape, self.layout.element_bytes)
        element = self._make_element(self._parse_scalar(value), None)
        return self._wrap(elementwise.broadcast_to(self.layout, element, lengths).copy())

    def arange(self, *bounds: int) -> A:
        """The integers of `range(*bounds)` modulo p, on the host.

        Args:
            bounds (int): The arguments of `range`: stop, or start, stop and step.
        """
        integers = [as_int(bound, "a bound of arange") for bound in bounds]
        if not 1 <= len(integers) <= 3:
            raise ArgumentTypeError(f"{self.name}: arange takes 1 to 3 bounds, not {len(bounds)}")
        if integers[2:] == [0]:
            raise ArgumentValueError(f"{self.name}: the step of arange must not be 0")
        numbers = range(*integers)
        parse_shape(max(-(-(numbers.stop - numbers.start) // numbers.step), 0), 1)
        return self.encode(list(numbers), reduce=True)

    # --- joining ---

    def concatenate(self, arrays: Sequence[A], *, axis: int = 0) -> A:
        """Arrays one behind the other along an axis.

        Args:
            arrays (sequence): The arrays, in one place.
            axis (int): The axis along which they are joined.
        """
        return self._wrap(self._join(arrays, axis, indexing.concatenate))

    def stack(self, arrays: Sequence[A], *, axis: int = 0) -> A:
        """Arrays of one shape along a new axis.

        Args:
            arrays (sequence): The arrays, in one place.
            axis (int): The new axis of the result.
        """
        return self._wrap(self._join(arrays, axis, indexing.stack))

    # --- element-wise operations ---

    def add(self, a: Operand, b: Operand) -> A:
        """a + b.

        Args:
            a (array or int): A summand: an array of the field, or what stands for one element.
            b (array or int): The other summand.
        """
        return self._combine("add", a, b, commutes=True)

    def sub(self, a: Operand, b: Operand) -> A:
        """a - b.

        Args:
            a (array or int): An array of the field, or what stands for one element.
            b (array or int): What is subtracted.
        """
        return self._combine("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> A:
        """a * b.

        Args:
            a (array or int): A factor: an array of the field, or what stands for one element.
            b (array or int): The other factor.
        """
        return self._combine("mul", a, b, commutes=True)

    def neg(self, a: A) -> A:
        """-a.

        Args:
            a (array): The elements.
        """
        return self._compute("neg", a)

    def double(self, a: A) -> A:
        """a + a.

        Args:
            a (array): The elements.
        """
        return self._compute("double", a)

    def square(self, a: A) -> A:
        """a * a.

        Args:
            a (array): The elements.
        """
        return self._compute("square", a)

    def fma(self, a: Operand, b: Operand, c: Operand) -> A:
        """a * b + c.

        Args:
            a (array or int): A factor.
            b (array or int): The other factor.
            c (array or int): The summand.
        """
        return self._compute("fma", a, b, c)

    def equal(self, a: Operand, b: Operand) -> npt.NDArray[np.bool_]:
        """Whether elements are equal: an array of booleans on the host.

        Args:
            a (array or int): An array of the field, or what stands for one element.
            b (array or int): What it is compared with.
        """
        if isinstance(a, FiniteFieldArray) and isinstance(b, FiniteFieldArray):
            one, other = cast("A", a), cast("A", b)
            if one.form == other.form and one.field == self == other.field:
                check_one_place([one, other])
                return self._compare_words(one.data, other.data)  # equal elements, equal words
        first, second = self._operands((a, b))
        return self._compare_words(first, second)

    def div(self, a: Operand, b: Operand) -> A:
        """a / b; a divisor that is 0 raises `ZeroDivisionError`.

        Args:
            a (array or int): The dividend.
            b (array or int): The divisor.
        """
        if isinstance(b, FiniteFieldArray):
            array: Any = b
            field = array.field if self.contains(array.field) else self
            shapes = [array.shape]
            if isinstance(a, FiniteFieldArray):
                check_one_place([a, array])
                shapes.insert(0, a.shape)
            quotients = math.prod(elementwise.find_common_shape(self.layout, shapes))
            return self.mul(a, field.inverse(array, zero="error" if quotients else "zero"))
        divisor = self._parse_scalar(b)
        inverse = self._invert_scalar(divisor)
        if inverse == self._parse_scalar(0):
            raise ElementDivisionError(f"{self.name}: division by {b}, which is 0 modulo p")
        return self.mul(a, inverse)

    def where(self, condition: npt.ArrayLike, a: Operand, b: Operand) -> A:
        """a where the condition is true, else b; the condition is on the host.

        Args:
            condition (array of bool): The condition, on the host; broadcast.
            a (array or int): The elements where it is true.
            b (array or int): The elements where it is false.
        """
        first, second = self._operands((a, b))
        flags = np.array(condition, np.bool_)
        return self._wrap(self._select_words(flags, first, second))

    select = where

    def inverse(self, a: A, *, zero: Literal["zero", "error"] = "zero") -> A:
        """1 / a. The inverse of 0 is 0; with `zero="error"` it is an error that names the first.

        On a device the error is raised when the result is fetched, or an array computed from it.

        Args:
            a (array): The elements.
            zero (str): "zero" or "error": what the inverse of 0 is.
        """
        data = self._load(a)
        check_choice("zero", zero, ("zero", "error"))
        inverses = self._invert_words(data)
        if zero == "error" and a.size:
            inverses = elementwise.forbid_zeros(
                self.layout, data, inverses, self._make_division_error
            )
        return self._wrap(inverses)

    def _make_division_error(self, index: int) -> ElementDivisionError:
        return ElementDivisionError(
            f"{self.name}: element {index} is 0 and has no inverse; inverse(array, zero='zero') "
            "gives 0"
        )

    # --- squares ---

    def is_square(self, a: A) -> npt.NDArray[np.bool_]:
        """Whether elements are squares, as 0 is: an array of booleans on the host.

        Args:
            a (array): The elements.
        """
        return self.legendre(a) >= 0

    def sqrt(self, a: A, *, nonsquare: Literal["error", "zero"] = "error") -> A:
        """A square root r of every element; the other one is -r. Host and device find the same.

        An element that is not a square is an error that names the first; with `nonsquare="zero"`
        its root is 0. The call waits for the device.

        Args:
            a (array): The elements.
            nonsquare (str): "error" or "zero": what the root of an element that is not a square is.
        """
        given = self._check(a)
        check_choice("nonsquare", nonsquare, ("error", "zero"))
        roots = self._find_roots(given)
        found = self.equal(self.square(roots), given)
        if found.all():
            return roots
        if nonsquare == "error":
            raise NoSquareRootError(
                f"{self.name}: element {int(np.argmin(found))} is not a square; "
                "sqrt(array, nonsquare='zero') gives 0"
            )
        return self.where(found, roots, 0)

    def _find_roots(self, a: A) -> A:
        """Square roots of those elements that are squares."""
        roots: A = square_roots.find_roots(self, a)
        return roots

    # --- sums and products over many elements ---

    def sum(self, a: A, *, axis: Axes = None, keepdims: bool = False) -> A:
        """The sum over an axis or several, by default over all of them.

        Args:
            a (array): The elements.
            axis (int or tuple): The axis or axes; None for all of them.
            keepdims (bool): Whether the result keeps these axes, with the length 1.
        """
        return self._reduce(self._sum_rows, 0, a, axis, keepdims)

    def prod(self, a: A, *, axis: Axes = None, keepdims: bool = False) -> A:
        """The product over an axis or several, by default over all of them.

        Args:
            a (array): The elements.
            axis (int or tuple): The axis or axes; None for all of them.
            keepdims (bool): Whether the result keeps these axes, with the length 1.
        """
        return self._reduce(self._multiply_rows, 1, a, axis, keepdims)

    def dot(self, a: Operand, b: Operand, *, axis: None = None) -> A:
        """The product by the rules of `np.dot`: the inner product of vectors, the product of
        matrices; of more axes over the last axis of a and the last but one of b.

        Args:
            a (array or int): The left factor; an element alone multiplies every element.
            b (array or int): The right factor.
            axis (None): Refused: `vecdot` sums products along an axis.
        """
        if axis is not None:
            raise ArgumentTypeError(
                f"{self.name}: dot takes no axis, like np.dot; vecdot(a, b, axis={axis}) sums "
                "products along an axis"
            )
        one, other = cast("A", a), cast("A", b)
        if not all(isinstance(each, FiniteFieldArray) and each.ndim for each in (a, b)):
            return self.mul(a, b)
        if one.ndim == other.ndim == 1:
            return self.vecdot(one, other)
        if other.ndim < 3:
            return self.matmul(one, other)
        *leading, k, n = other.shape
        columns = other.transpose(other.ndim - 2, *range(other.ndim - 2), other.ndim - 1)
        product = self.matmul(one, columns.reshape(k, math.prod(leading) * n))
        return product.reshape(*one.shape[:-1], *leading, n)

    def vecdot(self, a: A, b: A, *, axis: int = -1) -> A:
        """The sums of a * b along an axis, by the rules of `np.vecdot`; nothing is conjugated.

        Args:
            a (array): The left factors.
            b (array): The right factors; the other axes of both are broadcast.
            axis (int): The axis, of both arrays.
        """
        number, moved = as_int(axis, "axis"), []
        for each in (a, b):
            if not isinstance(each, FiniteFieldArray):
                self._check(each)
            at = parse_axes(number, each.shape)[0]
            order = [other for other in range(each.ndim) if other != at]
            moved.append(each.transpose(*order, at))
        if moved[0].shape[-1] != moved[1].shape[-1]:
            raise ArgumentShapeError(
                f"{self.name}: vecdot takes axes of one length; axis {number} of the shapes "
                f"{a.shape} and {b.shape} has not"
            )
        return self.sum(self.mul(*moved), axis=-1)

    def matmul(self, a: A, b: A) -> A:
        """The product of matrices or vectors, by the rules of `np.matmul`.

        Args:
            a (array): The matrices or the vector on the left.
            b (array): The matrices or the vector on the right.
        """
        first, second = self._load(a), self._load(b)
        check_one_place([a, b])
        return self._wrap(self._multiply_matrices(first, second))

    def prefix_product(self, a: A) -> A:
        """Every element times all elements before it in its row, along the last axis.

        Args:
            a (array): The elements.
        """
        return self._combine_prefixes(self._multiply_prefixes, a)

    def prefix_sum(self, a: A) -> A:
        """Every element plus all elements before it in its row, along the last axis.

        Args:
            a (array): The elements.
        """
        return self._combine_prefixes(self._add_prefixes, a)

    def _combine_prefixes(self, combine_rows: RowOperation, a: A) -> A:
        data = self._load(a)
        *leading, columns = a.shape or (1,)
        return self._wrap(combine_rows(data, math.prod(leading), columns))

    # --- operands ---

    def _combine(self, operation: str, a: Operand, b: Operand, *, commutes: bool = False) -> A:
        """`_compute` for two operands."""
        return self._compute(operation, a, b, commutes=commutes)

    def _compute(self, operation: str, *operands: Operand, commutes: bool = False) -> A:
        return self._wrap(self._compute_words(operation, self._operands(operands), commutes))

    def _reduce(
        self, reduce_rows: RowOperation, neutral: int, a: A, axis: Axes, keepdims: bool
    ) -> A:
        """Reduce rows that consist of the given axes, to `neutral` where rows are empty."""
        data, shape = self._load(a), a.shape
        axes = parse_axes(range(a.ndim) if axis is None else axis, shape)
        rest = [each for each in range(a.ndim) if each not in axes]
        if (order := (*rest, *sorted(axes))) != tuple(range(a.ndim)):
            data = elementwise.transpose(self.layout, data, order)
        rows = math.prod(shape[each] for each in rest)
        columns = math.prod(shape[each] for each in axes)
        kept = tuple(
            1 if each in axes else length
            for each, length in enumerate(shape)
            if keepdims or each not in axes
        )
        if not rows or not columns:
            element = self._load_scalar(neutral, a)
            return self._wrap(elementwise.broadcast_to(self.layout, element, kept).copy())
        found = reduce_rows(data, rows, columns)
        return self._wrap(elementwise.reshape(self.layout, found, kept))

    def _join(
        self,
        arrays: Sequence[A],
        axis: int,
        join: Callable[[ElementLayout, Sequence[ElementData], int], ElementData],
    ) -> ElementData:
        given = list(iterate(f"{self.name}: what is joined", arrays))
        if not given:
            raise ArgumentShapeError(f"{self.name}: there are no arrays to join")
        data = [self._load(each) for each in given]
        check_one_place(given)
        return join(self.layout, data, as_int(axis, "axis"))

    def _wrap(self, data: ElementData, form: Form | None = None) -> A:
        """Elements as an array, by default in the form in which the field computes."""
        return self.array_type(self, data, form or self.prime.form)

    def _check(self, array: A) -> A:
        """The array, if it is one of this field."""
        if not isinstance(array, FiniteFieldArray):
            raise ArgumentTypeError(
                f"{self.name}: expected {self.array_in_words}, found {type(array).__name__}; "
                f"{self._list_constructors()} make one"
            )
        if array.field is not self and array.field != self:
            given, own = self._describe_difference(array.field)
            raise ArgumentTypeError(f"an array of {given} was given to an operation of {own}")
        return array

    def _list_constructors(self) -> str:
        """The calls that make arrays of this field, in words."""
        return "encode(values) and from_words(words, form)"

    def _load(self, array: A) -> ElementData:
        """The elements of an array of this field, in the form in which the field computes."""
        return self._check(array).in_form(self.prime.form).data

    def _operands(self, operands: Sequence[Operand]) -> list[ElementData]:
        """Arrays and single elements as elements in one place."""
        arrays: list[Any] = [each for each in operands if isinstance(each, FiniteFieldArray)]
        if not arrays:
            raise ArgumentTypeError(
                f"{self.name}: at least one operand must be {self.array_in_words}"
            )
        if len(arrays) > 1:
            check_one_place(arrays)
        return [
            self._load(each)  # type: ignore[arg-type]
            if isinstance(each, FiniteFieldArray)
            else self._load_scalar(each, arrays[0])
            for each in operands
        ]

    def _load_scalar(self, operand: Operand, like: ElementArray) -> ElementData:
        """The element that an operand stands for, in the place of `like`."""
        device = like.device if like.on_device else None
        return self._make_element(self._parse_scalar(operand), device)

    def _load_values(self, values: Any, like: ElementArray) -> A:
        """Values to assign to `like` or to compare with it, in its place.

        An array of this field, what stands for an element, or nested lists or a NumPy array.
        """
        if isinstance(values, FiniteFieldArray):
            given: Any = values
            found = self._check(given)
            check_one_place([found, like])
            return found
        if not isinstance(values, list | tuple | np.ndarray):
            return self._wrap(self._load_scalar(values, like))
        encoded = self.encode(values, reduce=True)
        return encoded.copy_to_device(like.device) if like.on_device else encoded


def as_int(number: Any, what: str) -> int:
    """An integer of any type except bool."""
    is_integer = hasattr(number, "__index__") and not isinstance(number, ElementArray)
    if isinstance(number, bool | np.bool_) or not is_integer:
        raise ArgumentTypeError(f"{what} must be an integer, not {type(number).__name__}")
    try:
        return operator.index(number)
    except TypeError:  # an array of NumPy's that is not one integer
        raise ArgumentTypeError(f"{what} must be an integer, not {describe(number)}") from None
