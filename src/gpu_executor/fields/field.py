"""`Field`, arithmetic modulo a prime, and `FieldArray`, an array of its elements.

An operation checks its operands, converts them to the form in which the field computes, and hands
their words to `ops`. Further kinds of fields (extension fields) belong in modules beside this one.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.arguments import is_masked
from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.ops import elementwise, polynomials, scans, transforms
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.ops.transforms import Order, TransformOptions
from gpu_executor.primes import NAMED, Form, Prime, encoding, words

Operand = Any
"""A FieldArray, or an integer that stands for one element."""


class Field:
    """The integers modulo an odd prime of up to 768 bits.

    Operations take arrays of this field, and integers for single elements. All operands are in one
    place, on the host or on one device, and so is the result. On a device an operation is
    submitted and returns at once; fetching its result waits for it. Shorter operands are repeated
    over leading axes, as NumPy broadcasts.
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
                name or f"prime of {modulus.bit_length()} bits",
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

    # --- conversion ---

    def encode(self, values: Any, *, reduce: bool = False) -> FieldArray:
        """Integers 0 .. p-1, in nested lists or arrays, as elements on the host.

        With `reduce`, any integers are taken modulo p.
        """
        found = encoding.ints_to_words(self.prime, values, reduce=reduce)
        return FieldArray(self, found, "canonical")

    def decode(self, array: FieldArray) -> npt.NDArray[np.object_]:
        """The elements as Python integers, in a NumPy array of the same shape."""
        canonical = self._check(array).in_form("canonical")
        found: npt.NDArray[np.object_] = encoding.words_to_ints(self.prime, canonical.numpy())
        return found

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
        _check_form(form)
        if form == "montgomery" and self.form == "canonical":
            raise ArgumentTypeError(_no_montgomery_form(self))
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

    # --- element-wise operations ---

    def add(self, a: Operand, b: Operand) -> FieldArray:
        """a + b."""
        return self._compute("add", a, b, commutes=True)

    def sub(self, a: Operand, b: Operand) -> FieldArray:
        """a - b."""
        return self._compute("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> FieldArray:
        """a * b."""
        return self._compute("mul", a, b, commutes=True)

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

    def select(self, condition: npt.ArrayLike, a: Operand, b: Operand) -> FieldArray:
        """a where the condition is true, else b; the condition is on the host, of their shape."""
        first, second = self._operands((a, b))
        flags = np.array(condition, np.bool_)
        return self._wrap(elementwise.select(self.prime, flags, first, second))

    def power(self, a: FieldArray, exponent: int) -> FieldArray:
        """Every element to one power; a negative exponent inverts, and 0 stays 0."""
        data = self._load(a)
        return self._wrap(elementwise.power(self.prime, data, _as_int(exponent, "the exponent")))

    def inverse(self, a: FieldArray, *, zero: Literal["zero", "error"] = "zero") -> FieldArray:
        """1 / a. The inverse of 0 is 0; with `zero="error"` it is an error that names the first."""
        data = self._load(a)
        if zero not in ("zero", "error"):
            raise ArgumentTypeError(f"zero must be 'zero' or 'error', not {zero!r}")
        if zero == "error" and a.size:
            found = np.flatnonzero(self.equal(self._wrap(data), 0))
            if found.size:
                raise ZeroDivisionError(
                    f"{self.name}: element {found[0]} is 0 and has no inverse; zero='zero' gives 0"
                )
        return self._wrap(scans.invert(self.prime, data))

    # --- sums and products over many elements ---

    def sum(self, a: FieldArray, *, axis: Literal[-1] | None = None) -> FieldArray:
        """The sum of all elements, or with `axis=-1` of each row."""
        data = self._load(a)
        rows, columns, shape = _split_rows(a.shape, axis)
        if columns == 0:
            return self._wrap(elementwise.make_zeros(self.prime, shape, data))
        sums = scans.sum_rows(self.prime, data, rows, columns)
        return self._wrap(elementwise.reshape(self.prime, sums, shape))

    def dot(self, a: FieldArray, b: FieldArray, *, axis: Literal[-1] | None = None) -> FieldArray:
        """The sum of a * b over all elements, or with `axis=-1` over each row."""
        return self.sum(self.mul(a, b), axis=axis)

    def prefix_product(self, a: FieldArray) -> FieldArray:
        """Every element times all elements before it in its row."""
        data = self._load(a)
        rows, columns, _ = _split_rows(a.shape, -1)
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

    def _compute(self, operation: str, *operands: Operand, commutes: bool = False) -> FieldArray:
        data = self._operands(operands)
        return self._wrap(elementwise.compute(self.prime, operation, data, commutes=commutes))

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
            raise ArgumentTypeError(
                f"an array of {array.field.name} was given to an operation of {self.name}"
            )
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
        if isinstance(operand, bool) or not isinstance(operand, int | np.integer):
            raise ArgumentTypeError(
                f"{self.name}: an operand must be a FieldArray or an integer, not "
                f"{type(operand).__name__}"
            )
        device = like.device if like.on_device else None
        return elementwise.make_element(self.prime, int(operand) % self.modulus, device)


class FieldArray:
    """Elements of a field, on the host or on a device; `Field` makes them.

    The operators + - * ** == != and slices work on it; `numpy()` returns the words.

    In Montgomery form an element x is stored as x * R mod p, R = 2^(32k) for elements of k words.
    The array knows its form, and operations convert it where they need another one.
    """

    __slots__ = ("data", "field", "form", "shape")
    __array_ufunc__ = None  # NumPy leaves its operators to this class

    def __init__(self, field: Field, data: ElementData, form: Form) -> None:
        self.field = field
        self.data = data
        self.form = form
        self.shape: Shape = data.shape[: len(data.shape) - len(field.prime.element_shape)]
        """In elements: the columns of an element are not an axis."""

    @property
    def on_device(self) -> bool:
        return isinstance(self.data, DeviceArray)

    @property
    def device(self) -> ArrayDevice:
        """The device that holds the array; an error for an array on the host."""
        if not isinstance(self.data, DeviceArray):
            raise ArgumentTypeError(
                "the array is on the host; gpu.to_device(array) copies it to a device"
            )
        device: ArrayDevice = self.data.storage.device
        return device

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.data.nbytes

    def numpy(self) -> Words:
        """The words, shape (..., columns), in the array's form; read-only for an array on the host,
        whose words they are.
        """
        if isinstance(self.data, DeviceArray):
            return self.data.numpy()
        found = np.asarray(self.data).view()
        found.flags.writeable = False  # the elements must stay below the modulus
        return found

    def to_host(self) -> FieldArray:
        """The same elements in host memory."""
        return FieldArray(self.field, self.numpy(), self.form)

    def copy_to_device(self, device: ArrayDevice) -> FieldArray:
        """A copy on the device, in the form in which the field computes."""
        if self.on_device:
            raise ArgumentTypeError(
                "the array is on a device already; to_host() copies it to the host"
            )
        copy = FieldArray(self.field, device.put(self.numpy()), self.form)
        return copy.in_form(self.field.form)

    def wrap_like(self, data: DeviceArray) -> FieldArray:
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

    # Names of earlier versions, kept for users.
    on_card, card, to_card = on_device, device, copy_to_device

    def in_form(self, form: Form) -> FieldArray:
        """The same elements in another form; the array itself if it has that form."""
        if self.form == form:
            return self
        _check_form(form)
        if self.field.form == "canonical":
            raise ArgumentTypeError(_no_montgomery_form(self.field))
        converted = elementwise.convert(self.field.prime, self.data, form)
        return FieldArray(self.field, converted, form)

    def ints(self) -> npt.NDArray[np.object_]:
        """The elements as Python integers."""
        return self.field.decode(self)

    def reshape(self, *shape: int | Shape) -> FieldArray:
        """The same elements in another shape, given as lengths or as one tuple."""
        lengths: Any = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        try:
            return self._with(elementwise.reshape(self.field.prime, self.data, lengths))
        except ValueError:
            raise ArgumentShapeError(
                f"an array of shape {self.shape} cannot be reshaped to {lengths}"
            ) from None

    def __getitem__(self, item: Any) -> FieldArray:
        """Elements, as NumPy indexes them; on a device integers, then at most one slice."""
        items = item if isinstance(item, tuple) else (item,)
        if sum(each is not None and each is not Ellipsis for each in items) > self.ndim:
            raise IndexError(f"{len(items)} indices for an array of shape {self.shape}")
        if not isinstance(self.data, DeviceArray):
            columns = self.field.prime.element_shape if Ellipsis in items else ()
            return self._with(self.data[(*items, *[slice(None)] * len(columns))])
        found = self.data
        for index, each in enumerate(items):
            if not isinstance(each, int | np.integer | slice) or (
                isinstance(each, slice) and index + 1 < len(items)
            ):
                raise ArgumentShapeError(
                    "an array on a device is indexed by integers, then at most one slice, not by "
                    f"{item!r}; to_host() copies it to the host"
                )
            found = found[each if isinstance(each, slice) else int(each)]
        return self._with(found)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def _with(self, data: ElementData) -> FieldArray:
        return FieldArray(self.field, data, self.form)

    def __add__(self, other: Any) -> FieldArray:
        return self.field.add(self, other)

    def __radd__(self, other: Any) -> FieldArray:
        return self.field.add(self, other)

    def __sub__(self, other: Any) -> FieldArray:
        return self.field.sub(self, other)

    def __rsub__(self, other: Any) -> FieldArray:
        return self.field.add(self.field.neg(self), other)

    def __mul__(self, other: Any) -> FieldArray:
        return self.field.mul(self, other)

    def __rmul__(self, other: Any) -> FieldArray:
        return self.field.mul(self, other)

    def __neg__(self) -> FieldArray:
        return self.field.neg(self)

    def __pow__(self, exponent: int) -> FieldArray:
        return self.field.power(self, exponent)

    def __eq__(self, other: object) -> Any:
        """Element by element, as an array of booleans on the host."""
        return self.field.equal(self, other)

    def __ne__(self, other: object) -> Any:
        """Element by element, as an array of booleans on the host."""
        return ~self.field.equal(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        place = "device" if self.on_device else "host"
        return f"<FieldArray {self.shape} of {self.field.name} on the {place}, {self.form} form>"


def _check_form(form: str) -> None:
    if form not in ("canonical", "montgomery"):
        raise ArgumentTypeError(f"form must be 'canonical' or 'montgomery', not {form!r}")


def _no_montgomery_form(field: Field) -> str:
    return f"{field.name} has no Montgomery form; its elements are stored in canonical form"


def _check_one_place(arrays: Iterable[FieldArray]) -> None:
    """Arrays are never moved between host and device implicitly."""
    if len({id(each.device) if each.on_device else None for each in arrays}) > 1:
        raise ArgumentTypeError(
            "the operands are in different places, on the host and on a device or on two devices; "
            "gpu.to_device(array) and array.to_host() copy one"
        )


def _split_rows(shape: Shape, axis: int | None) -> tuple[int, int, Shape]:
    """Rows, their length, and the shape of a result with one element per row."""
    if axis not in (None, -1):
        raise ArgumentShapeError(f"axis must be -1 (each row) or None (all elements), not {axis}")
    if axis is None or not shape:
        return 1, math.prod(shape), ()
    *leading, columns = shape
    return math.prod(leading), columns, tuple(leading)


def _as_int(number: Any, what: str) -> int:
    """An integer of any type except bool."""
    if isinstance(number, bool | np.bool_) or not hasattr(number, "__index__"):
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
