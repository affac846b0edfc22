"""`Field`, arithmetic modulo a prime, and `FieldArray`, an array of its elements.

An operation checks its operands, converts them to the form in which the field computes, and hands
their words to `ops`. Further kinds of fields (extension fields) belong in modules beside this one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.arguments import is_masked, parse_shape
from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.fields.element_array import (
    ElementArray,
    check_form,
    explain_single_form,
    parse_axes,
)
from gpu_executor.ops import (
    elementwise,
    indexing,
    matrices,
    polynomials,
    powers,
    scans,
    transforms,
)
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.ops.transforms import Order, TransformOptions
from gpu_executor.primes import NAMED, Form, Prime, encoding, words

Operand = Any
"""A FieldArray, or an integer that stands for one element."""
Axes = int | Sequence[int] | None
"""An axis or several; None: all of them."""
MAX_NAME_DIGITS = 20
"""Digits of a modulus that a field without a name is called by; a longer one is shortened."""


class Field:
    """The integers modulo an odd prime of up to 768 bits.

    Operations take arrays of this field, and integers for single elements. All operands are in one
    place, on the host or on one device, and so is the result. On a device an operation is
    submitted and returns at once; fetching its result waits for it. Operands of different shapes
    are broadcast by NumPy's rules.
    """

    def __init__(
        self, modulus: int, *, name: str | None = None, factors: Sequence[int] = ()
    ) -> None:
        """`factors` are the odd prime factors of modulus - 1; most moduli do not need them."""
        modulus = _as_int(modulus, "the modulus")
        known = {prime.modulus: prime for prime in NAMED.values()}.get(modulus)
        if known is not None and name is None and not factors:
            self.prime = known
        else:
            self.prime = Prime(
                name or _name_modulus(modulus),
                modulus,
                canonical=known is not None and known.canonical,
                factors=tuple(factors),
            )

    @property
    def name(self) -> str:
        return self.prime.name

    @property
    def modulus(self) -> int:
        return self.prime.modulus

    @property
    def form(self) -> Form:
        """The form in which the field computes."""
        form: Form = self.prime.form
        return form

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return False
        return (other.modulus, other.form) == (self.modulus, self.form)

    def __hash__(self) -> int:
        return hash(self.modulus)

    def __repr__(self) -> str:
        return f"<Field {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_field, (self.modulus, self.name, self.prime.factors)

    # --- conversion ---

    def encode(self, values: Any, *, reduce: bool = False) -> FieldArray:
        """Integers 0 .. p-1, in nested lists or arrays, as elements on the host.

        With `reduce`, any integers are taken modulo p.
        """
        found = encoding.ints_to_words(self.prime, values, reduce=reduce)
        return FieldArray(self, found, "canonical")

    def decode(self, array: FieldArray) -> npt.NDArray[np.object_]:
        """The elements as Python integers, in a NumPy array of the same shape."""
        return self._check(array).ints()

    def from_bytes(
        self, data: Any, *, byteorder: encoding.ByteOrder = "big", width: int | None = None
    ) -> FieldArray:
        """Elements on the host from `width` bytes each: bytes, or uint8 arrays (..., width).

        The default width is that of the modulus, 32 for 255 bits.
        """
        found = encoding.bytes_to_words(self.prime, data, byteorder=byteorder, width=width)
        return FieldArray(self, found, "canonical")

    def to_bytes(
        self,
        array: FieldArray,
        *,
        byteorder: encoding.ByteOrder = "big",
        width: int | None = None,
    ) -> npt.NDArray[np.uint8]:
        """The elements as bytes: an array of shape (..., width)."""
        found = self._check(array).in_form("canonical").numpy()
        return encoding.words_to_bytes(self.prime, found, byteorder=byteorder, width=width)

    def from_words(self, data: Words, form: Form) -> FieldArray:
        """Elements on the host from a copy of their words, in the form that the caller states."""
        check_form(form)
        if form == "montgomery" and self.form == "canonical":
            raise ArgumentTypeError(explain_single_form(self.prime))
        if not isinstance(data, np.ndarray):
            raise ArgumentTypeError(
                f"{self.name}: words must be a NumPy array, not {type(data).__name__}"
            )
        if is_masked(data):
            raise ArgumentTypeError(
                f"{self.name}: words is a masked array, and fields ignore masks; pass its .data, "
                "or .filled(value)"
            )
        # What was checked must not change any more: an operation takes the elements to be below p.
        own = np.array(data)
        bad = words.first_not_below(self.prime, own)
        if bad is not None:
            raise ElementRangeError(self.name, 0, bad)
        return FieldArray(self, own, form)

    def zeros(self, shape: int | Sequence[int]) -> FieldArray:
        """Zeros on the host."""
        return self.full(shape, 0)

    def ones(self, shape: int | Sequence[int]) -> FieldArray:
        """Ones on the host."""
        return self.full(shape, 1)

    def full(self, shape: int | Sequence[int], value: int) -> FieldArray:
        """Equal elements on the host; the value is taken modulo p."""
        lengths = parse_shape(shape, self.prime.element_bytes)
        element = self.encode(_as_int(value, "the value"), reduce=True).in_form(self.form)
        data = elementwise.broadcast_to(self.prime, element.data, lengths)
        return self._wrap(data.copy())

    def arange(self, *bounds: int) -> FieldArray:
        """The integers of `range(*bounds)` modulo p, on the host."""
        integers = (_as_int(bound, "a bound of arange") for bound in bounds)
        return self.encode(list(range(*integers)), reduce=True)

    def random(
        self, shape: int | Sequence[int], seed: int | np.random.Generator | None = None
    ) -> FieldArray:
        """Uniformly distributed elements on the host; not for secrets."""
        lengths = parse_shape(shape, self.prime.element_bytes)
        # Integers of 128 bits more than p are uniform modulo p within 2^-128.
        count, width = math.prod(lengths), self.prime.element_bytes + 16
        drawn = np.random.default_rng(seed).bytes(count * width)
        values = [
            int.from_bytes(drawn[at : at + width], "little") % self.modulus
            for at in range(0, count * width, width)
        ]
        found = words.from_ints(self.prime, values)
        return FieldArray(self, found.reshape(*lengths, *self.prime.element_shape), "canonical")

    # --- joining ---

    def concatenate(self, arrays: Sequence[FieldArray], *, axis: int = 0) -> FieldArray:
        """Arrays one behind the other along an axis."""
        return self._wrap(self._join(arrays, axis, indexing.concatenate))

    def stack(self, arrays: Sequence[FieldArray], *, axis: int = 0) -> FieldArray:
        """Arrays of one shape along a new axis."""
        return self._wrap(self._join(arrays, axis, indexing.stack))

    # --- element-wise operations ---

    def add(self, a: Operand, b: Operand) -> FieldArray:
        """a + b."""
        return self._combine("add", a, b, commutes=True)

    def sub(self, a: Operand, b: Operand) -> FieldArray:
        """a - b."""
        return self._combine("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> FieldArray:
        """a * b."""
        return self._combine("mul", a, b, commutes=True)

    def neg(self, a: FieldArray) -> FieldArray:
        """-a."""
        return self._compute("neg", a)

    def double(self, a: FieldArray) -> FieldArray:
        """a + a."""
        return self._compute("double", a)

    def square(self, a: FieldArray) -> FieldArray:
        """a * a."""
        return self._compute("square", a)

    def fma(self, a: Operand, b: Operand, c: Operand) -> FieldArray:
        """a * b + c."""
        return self._compute("fma", a, b, c)

    def equal(self, a: Operand, b: Operand) -> npt.NDArray[np.bool_]:
        """Whether elements are equal: an array of booleans on the host."""
        found = elementwise.compute(self.prime, "equal", self._operands((a, b)), commutes=True)
        host = found.numpy() if isinstance(found, DeviceArray) else found
        return host.astype(np.bool_)

    def div(self, a: Operand, b: Operand) -> FieldArray:
        """a / b; a divisor that is 0 raises `ZeroDivisionError`."""
        if isinstance(b, FieldArray):
            return self.mul(a, self.inverse(b, zero="error"))
        divisor = self._parse_integer(b)
        if not divisor:
            raise ZeroDivisionError(f"{self.name}: division by {b}, which is 0 modulo p")
        return self.mul(a, pow(divisor, -1, self.modulus))

    def where(self, condition: npt.ArrayLike, a: Operand, b: Operand) -> FieldArray:
        """a where the condition is true, else b; the condition is on the host."""
        first, second = self._operands((a, b))
        flags = np.array(condition, np.bool_)
        return self._wrap(elementwise.select(self.prime, flags, first, second))

    select = where

    def power(self, a: FieldArray, exponent: int) -> FieldArray:
        """Every element to one power; a negative exponent inverts, and 0 stays 0."""
        number = _as_int(exponent, "the exponent")
        base = a.in_form(self.form) if self._check(a).on_device else a
        return base._with(powers.power(self.prime, base.data, number, base.form))

    def inverse(self, a: FieldArray, *, zero: Literal["zero", "error"] = "zero") -> FieldArray:
        """1 / a. The inverse of 0 is 0; with `zero="error"` it is an error that names the first.

        On a device the error is raised when the result is fetched, or an array computed from it.
        """
        data = self._load(a)
        if zero not in ("zero", "error"):
            raise ArgumentTypeError(f"zero must be 'zero' or 'error', not {zero!r}")
        inverses = scans.invert(self.prime, data)
        if zero == "error" and a.size:
            inverses = elementwise.forbid_zeros(
                self.prime, data, inverses, self._make_division_error
            )
        return self._wrap(inverses)

    def _make_division_error(self, index: int) -> ZeroDivisionError:
        return ZeroDivisionError(
            f"{self.name}: element {index} is 0 and has no inverse; inverse(array, zero='zero') "
            "gives 0"
        )

    # --- sums and products over many elements ---

    def sum(self, a: FieldArray, *, axis: Axes = None, keepdims: bool = False) -> FieldArray:
        """The sum over an axis or several, by default over all of them."""
        return self._reduce(scans.sum_rows, 0, a, axis, keepdims)

    def prod(self, a: FieldArray, *, axis: Axes = None, keepdims: bool = False) -> FieldArray:
        """The product over an axis or several, by default over all of them."""
        return self._reduce(scans.multiply_rows, 1, a, axis, keepdims)

    def dot(self, a: FieldArray, b: FieldArray, *, axis: Axes = None) -> FieldArray:
        """The sum of a * b over an axis or several, by default over all of them."""
        return self.sum(self.mul(a, b), axis=axis)

    def matmul(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """The product of matrices or vectors, by the rules of `np.matmul`."""
        first, second = self._load(a), self._load(b)
        _check_one_place([a, b])
        return self._wrap(matrices.multiply(self.prime, first, second))

    def prefix_product(self, a: FieldArray) -> FieldArray:
        """Every element times all elements before it in its row, along the last axis."""
        data = self._load(a)
        *leading, columns = a.shape or (1,)
        rows = math.prod(leading)
        return self._wrap(scans.multiply_prefixes(self.prime, data, rows, columns))

    # --- transforms ---

    def ntt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
    ) -> FieldArray:
        """The values of polynomials at the powers of a root of unity, or at `coset` times those.

        The coefficients run along the last axis.
        """
        return self._transform(a, TransformOptions(False, order_in, order_out, coset))

    def intt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
    ) -> FieldArray:
        """The coefficients of the polynomials that have these values: the inverse of `ntt`."""
        return self._transform(a, TransformOptions(True, order_in, order_out, coset))

    # --- polynomials: coefficients along the last axis, the constant term first ---

    def poly_mul(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """The product of polynomials; leading axes are a batch."""
        first, second = self._load(a), self._load(b)
        _check_one_place([a, b])
        return self._wrap(polynomials.multiply(self.prime, first, second))

    def poly_eval(self, a: FieldArray, points: FieldArray) -> FieldArray:
        """The values of one polynomial at many points; for all roots of unity `ntt` is faster."""
        coefficients, at = self._load(a), self._load(points)
        _check_one_place([a, points])
        return self._wrap(polynomials.evaluate(self.prime, coefficients, at))

    def poly_divide_vanishing(self, a: FieldArray, n: int) -> tuple[FieldArray, FieldArray]:
        """Quotient and remainder of one polynomial by X^n - 1."""
        coefficients = self._load(a)
        degree = _as_int(n, "n of X^n - 1")
        quotient, remainder = polynomials.divide_by_vanishing(self.prime, coefficients, degree)
        return self._wrap(quotient), self._wrap(remainder)

    # --- operands ---

    def _combine(
        self, operation: str, a: Operand, b: Operand, *, commutes: bool = False
    ) -> FieldArray:
        """`_compute` for two operands. Arrays of this field on one device, in the field's form and
        of one shape, or an array and an integer, need no further preparation."""
        if commutes and type(a) is int:
            a, b = b, a
        form = self.prime.form
        if type(a) is FieldArray and a.field is self and a.form == form:
            x = a.data
            if type(x) is DeviceArray:
                y: Any = None
                if type(b) is int:
                    element = b % self.prime.modulus
                    y = elementwise.make_element(self.prime, element, x.storage.device)
                elif type(b) is FieldArray and b.field is self and b.form == form:
                    y = b.data if b.shape == a.shape else None
                if type(y) is DeviceArray and x.storage.device is y.storage.device:
                    return FieldArray(self, elementwise.combine(self.prime, operation, x, y), form)
        return self._compute(operation, a, b, commutes=commutes)

    def _compute(self, operation: str, *operands: Operand, commutes: bool = False) -> FieldArray:
        data = self._operands(operands)
        return self._wrap(elementwise.compute(self.prime, operation, data, commutes=commutes))

    def _reduce(
        self,
        reduce_rows: Callable[[Prime, ElementData, int, int], ElementData],
        neutral: int,
        a: FieldArray,
        axis: Axes,
        keepdims: bool,
    ) -> FieldArray:
        """Reduce rows that consist of the given axes, to `neutral` where rows are empty."""
        data, shape = self._load(a), a.shape
        axes = parse_axes(range(a.ndim) if axis is None else axis, shape)
        rest = [each for each in range(a.ndim) if each not in axes]
        if (order := (*rest, *sorted(axes))) != tuple(range(a.ndim)):
            data = elementwise.transpose(self.prime, data, order)
        rows = math.prod(shape[each] for each in rest)
        columns = math.prod(shape[each] for each in axes)
        kept = tuple(
            1 if each in axes else length
            for each, length in enumerate(shape)
            if keepdims or each not in axes
        )
        if not rows or not columns:
            return self._wrap(elementwise.make_full(self.prime, kept, neutral, data))
        found = reduce_rows(self.prime, data, rows, columns)
        return self._wrap(elementwise.reshape(self.prime, found, kept))

    def _join(
        self,
        arrays: Sequence[FieldArray],
        axis: int,
        join: Callable[[Prime, Sequence[ElementData], int], ElementData],
    ) -> ElementData:
        given = list(arrays)
        if not given:
            raise ArgumentShapeError(f"{self.name}: there are no arrays to join")
        data = [self._load(each) for each in given]
        _check_one_place(given)
        return join(self.prime, data, _as_int(axis, "axis"))

    def _transform(self, a: FieldArray, options: TransformOptions) -> FieldArray:
        data = self._load(a)
        for name, order in (("order_in", options.order_in), ("order_out", options.order_out)):
            if order not in ("natural", "reversed"):
                raise ArgumentTypeError(f"{name} must be 'natural' or 'reversed', not {order!r}")
        if options.coset is not None and _as_int(options.coset, "coset") % self.modulus == 0:
            raise ArgumentTypeError(
                f"{self.name}: coset must not be a multiple of the modulus, as {options.coset} is"
            )
        return self._wrap(transforms.transform(self.prime, data, options))

    def _wrap(self, data: ElementData) -> FieldArray:
        """Elements in the form in which the field computes, as an array."""
        return FieldArray(self, data, self.prime.form)

    def _check(self, array: FieldArray) -> FieldArray:
        """The array, if it is one of this field."""
        if not isinstance(array, FieldArray):
            raise ArgumentTypeError(
                f"{self.name}: expected a FieldArray, found {type(array).__name__}; "
                "encode(ints), from_bytes(data) and from_words(words, form) make one"
            )
        if array.field is not self and array.field != self:
            given, own = array.field.name, self.name
            if given == own:
                given, own = (f"{own} modulo {each.modulus}" for each in (array.field, self))
            raise ArgumentTypeError(f"an array of {given} was given to an operation of {own}")
        return array

    def _load(self, array: FieldArray) -> ElementData:
        """The elements of an array of this field, in the form in which the field computes."""
        return self._check(array).in_form(self.prime.form).data

    def _operands(self, operands: Sequence[Operand]) -> list[ElementData]:
        """Arrays and integers as elements in one place."""
        arrays = [each for each in operands if isinstance(each, FieldArray)]
        if not arrays:
            raise ArgumentTypeError(f"{self.name}: at least one operand must be a FieldArray")
        if len(arrays) > 1:
            _check_one_place(arrays)
        place = arrays[0]
        return [
            self._load(each) if isinstance(each, FieldArray) else self._load_integer(each, place)
            for each in operands
        ]

    def _load_integer(self, operand: Operand, like: FieldArray) -> ElementData:
        """The element that an integer stands for, in the place of `like`."""
        device = like.device if like.on_device else None
        return elementwise.make_element(self.prime, self._parse_integer(operand), device)

    def _parse_integer(self, operand: Operand) -> int:
        """An integer modulo p."""
        if isinstance(operand, bool) or not isinstance(operand, int | np.integer):
            raise ArgumentTypeError(
                f"{self.name}: an operand must be a FieldArray or an integer, not "
                f"{type(operand).__name__}; encode(values) makes a FieldArray of integers"
            )
        return int(operand) % self.modulus

    def _load_values(self, values: Any, like: FieldArray) -> FieldArray:
        """Values to assign to `like` or to compare with it, in its place.

        An array of this field, an integer, or nested lists or a NumPy array of integers.
        """
        if isinstance(values, FieldArray):
            _check_one_place([self._check(values), like])
            return values
        if not isinstance(values, list | tuple | np.ndarray):
            return self._wrap(self._load_integer(values, like))
        encoded = self.encode(values, reduce=True)
        return encoded.copy_to_device(like.device) if like.on_device else encoded


class FieldArray(ElementArray):
    """Elements of a field, on the host or on a device; `Field` makes them.

    It has NumPy's operators, methods and indexing where they have a meaning. An integer stands for
    an element. `numpy()` returns the words, `ints()` and `tolist()` Python integers.

    The array knows its form, and operations convert it where they need another one.
    """

    __slots__ = ("field",)

    def __init__(self, field: Field, data: ElementData, form: Form) -> None:
        self.field = field
        self.data = data
        self.form = form
        self.shape = data.shape[: len(data.shape) - len(field.prime.element_shape)]
        """In elements: the columns of an element are not an axis."""

    @property
    def prime(self) -> Prime:
        return self.field.prime

    def _with(self, data: ElementData, form: Form | None = None) -> FieldArray:
        return FieldArray(self.field, data, form or self.form)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the words: an array on a device comes back on the host."""
        return FieldArray, (self.field, np.array(self.numpy()), self.form)

    # --- in graphs and calls of kernels ---

    def wrap_like(self, data: ElementData) -> FieldArray:
        """An array of the same field and form over other words."""
        return FieldArray(self.field, data, self.form)

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

    def __pos__(self) -> FieldArray:
        return self.copy()

    def __neg__(self) -> FieldArray:
        return self.field.neg(self)

    def __add__(self, other: Any) -> FieldArray:
        return self.field.add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> FieldArray:
        return self.field.sub(self, other)

    def __rsub__(self, other: Any) -> FieldArray:
        return self.field.add(self.field.neg(self), other)

    def __mul__(self, other: Any) -> FieldArray:
        return self.field.mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> FieldArray:
        return self.field.div(self, other)

    def __rtruediv__(self, other: Any) -> FieldArray:
        return self.field.div(other, self)

    def __pow__(self, exponent: int) -> FieldArray:
        return self.field.power(self, exponent)

    def __matmul__(self, other: Any) -> FieldArray:
        return self.field.matmul(self, other)

    def __rmatmul__(self, other: Any) -> FieldArray:
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

    def _overwrite(self, result: FieldArray) -> Self:
        """Copy a result of the array's own shape to the array's memory, which views share."""
        if result.shape != self.shape:
            raise ArgumentShapeError(
                f"{self.field.name}: a result of shape {result.shape} cannot be written to an "
                f"array of shape {self.shape}"
            )
        indexing.copy_items(self.prime, result.in_form(self.form).data, self.data)
        return self

    def __setitem__(self, item: Any, values: Any) -> None:
        """Write an array, an integer, or integers in nested lists or a NumPy array to elements.

        The index is one of NumPy's, as in `__getitem__`. The values are broadcast.
        """
        if (
            isinstance(values, np.ndarray)
            and values.dtype == self.prime.column_dtype
            and self.prime.form == "montgomery"
        ):
            raise ArgumentTypeError(
                f"{self.field.name}: an array of {values.dtype} may hold integers or words; assign "
                "encode(integers) or from_words(words, form)"
            )
        given = self.field._load_values(values, self).in_form(self.form)
        indexing.set_items(self.prime, self.data, item, given.data)

    # --- comparison ---

    def __eq__(self, other: object) -> Any:
        """Element by element, as an array of booleans on the host.

        Numbers and arrays of integers are compared modulo p. Nothing else equals an element.
        """
        if isinstance(other, bool | np.bool_) or (
            isinstance(other, float | np.floating) and other.is_integer()
        ):
            other = int(other)
        try:
            values = self.field._load_values(other, self)
        except (ArgumentTypeError, ArgumentShapeError):
            if isinstance(other, FieldArray):
                raise
            return np.zeros(self.shape, np.bool_)
        return self.field.equal(self, values)

    def __ne__(self, other: object) -> Any:
        """Element by element, as an array of booleans on the host."""
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    # --- over many elements ---

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> FieldArray:
        """The sum over an axis or several, by default over all of them."""
        return self.field.sum(self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, *, keepdims: bool = False) -> FieldArray:
        """The product over an axis or several, by default over all of them."""
        return self.field.prod(self, axis=axis, keepdims=keepdims)

    def dot(self, other: Operand) -> FieldArray:
        """The product by the rules of `np.dot`: over the last axis of this array and the last but
        one of the other."""
        if not isinstance(other, FieldArray) or not self.ndim or not other.ndim:
            return self.field.mul(self, other)
        if other.ndim < 3:
            return self.field.matmul(self, other)
        *leading, k, n = other.shape
        columns = other.transpose(other.ndim - 2, *range(other.ndim - 2), other.ndim - 1)
        product = self.field.matmul(self, columns.reshape(k, -1))
        return product.reshape(*self.shape[:-1], *leading, n)

    def __array_function__(
        self, function: Any, _types: Any, arguments: Any, options: dict[str, Any]
    ) -> Any:
        """NumPy's functions that have a meaning for elements; any other raises TypeError."""
        method = _NUMPY_FUNCTIONS.get(function)
        return NotImplemented if method is None else method(*arguments, **options)


_NUMPY_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a: a.size,
    np.sum: lambda a, axis=None, keepdims=False: a.sum(axis, keepdims=keepdims),
    np.prod: lambda a, axis=None, keepdims=False: a.prod(axis, keepdims=keepdims),
    np.dot: lambda a, b: a.dot(b) if isinstance(a, FieldArray) else b.field.mul(a, b),
    np.where: lambda condition, a, b: _find_field([a, b]).where(condition, a, b),
    np.reshape: lambda a, shape: a.reshape(shape),
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.copy: lambda a: a.copy(),
    np.concatenate: lambda arrays, axis=0: _find_field(arrays).concatenate(arrays, axis=axis),
    np.stack: lambda arrays, axis=0: _find_field(arrays).stack(arrays, axis=axis),
    np.array_equal: lambda a, b: np.shape(a) == np.shape(b) and bool((a == b).all()),
}


def _check_one_place(arrays: Iterable[FieldArray]) -> None:
    """Arrays are never moved between host and device implicitly."""
    if len({id(each.device) if each.on_device else None for each in arrays}) > 1:
        raise ArgumentTypeError(
            "the operands are in different places, on the host and on a device or on two devices; "
            "gpu.to_device(array) and array.to_host() copy one"
        )


def _find_field(arrays: Iterable[Any]) -> Field:
    """The field of the first array that has one."""
    return next(each.field for each in arrays if isinstance(each, FieldArray))


def _name_modulus(modulus: int) -> str:
    """The name of a field that the caller gave no name: it tells moduli apart."""
    digits = str(modulus)
    if len(digits) <= MAX_NAME_DIGITS:
        return f"prime {digits}"
    shown = f"{modulus:#x}"
    return f"prime {shown[:10]}...{shown[-8:]} of {modulus.bit_length()} bits"


def _restore_field(modulus: int, name: str, factors: tuple[int, ...]) -> Field:
    """A field that was pickled; a well-known one is the field of this module."""
    known = NAMED_FIELDS.get(name)
    if known is not None and (known.modulus, known.prime.factors) == (modulus, factors):
        return known
    return Field(modulus, name=name, factors=factors)


def _as_int(number: Any, what: str) -> int:
    """An integer of any type except bool."""
    is_integer = hasattr(number, "__index__") and not isinstance(number, ElementArray)
    if isinstance(number, bool | np.bool_) or not is_integer:
        raise ArgumentTypeError(f"{what} must be an integer, not {type(number).__name__}")
    return operator.index(number)


NAMED_FIELDS = {name: Field(prime.modulus) for name, prime in NAMED.items()}

BLS12_381_FQ = NAMED_FIELDS["bls12_381_fq"]
BLS12_381_FR = NAMED_FIELDS["bls12_381_fr"]
BN254_FQ = NAMED_FIELDS["bn254_fq"]
BN254_FR = NAMED_FIELDS["bn254_fr"]
BLS12_377_FQ = NAMED_FIELDS["bls12_377_fq"]
BLS12_377_FR = NAMED_FIELDS["bls12_377_fr"]
SECP256K1 = NAMED_FIELDS["secp256k1"]
SECP256K1_FN = NAMED_FIELDS["secp256k1_fn"]
CURVE25519 = NAMED_FIELDS["curve25519"]
PALLAS = NAMED_FIELDS["pallas"]
VESTA = NAMED_FIELDS["vesta"]
GOLDILOCKS = NAMED_FIELDS["goldilocks"]
BABYBEAR = NAMED_FIELDS["babybear"]
KOALABEAR = NAMED_FIELDS["koalabear"]
MERSENNE31 = NAMED_FIELDS["mersenne31"]
