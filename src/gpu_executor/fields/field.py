"""Field: arithmetic modulo a prime, on arrays wherever they live."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.dispatch import Card, Dispatch
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.fields import host_scans, host_transform, polynomials
from gpu_executor.fields.array import FieldArray, Form, Words
from gpu_executor.fields.neighbours import by_neighbours
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.ops import scans
from gpu_executor.ops.transform import Order, Way, transform
from gpu_executor.primes import NAMED, Prime, encoding, words

Operand = Any
"""A FieldArray, or an integer that stands for an element."""
AT_ONCE = 65_535 * 64
"""Elements that every device takes with a work-group for each 64; more need a kernel that strides,
which costs lavapipe a third of its products."""


class Field:
    """The integers modulo an odd prime of up to 768 bits.

    Operations take arrays of this field, and integers for single elements. On a card they are
    submitted and not waited for: fetching a result waits. Shorter operands are repeated as NumPy
    repeats over leading axes.
    """

    def __init__(
        self, modulus: int, *, name: str | None = None, factors: Sequence[int] = ()
    ) -> None:
        """`factors` are the odd prime factors of modulus - 1, where they cannot be found."""
        modulus = _whole(modulus, "a modulus")
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
        """The form in which it computes."""
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

    # --- from and to integers, bytes, words ---

    def encode(self, values: Any, *, reduce: bool = False) -> FieldArray:
        """Integers 0 .. p-1 (any with `reduce`), in lists or arrays, as elements on the host."""
        found = encoding.ints_to_words(self.prime, values, reduce=reduce)
        return FieldArray(self, found, "canonical")

    def decode(self, array: FieldArray) -> npt.NDArray[np.object_]:
        """The elements as Python integers, in an array of their shape."""
        own = self._own(array).in_form("canonical")
        found: npt.NDArray[np.object_] = encoding.words_to_ints(self.prime, own.numpy())
        return found

    def from_bytes(
        self, data: Any, *, byteorder: encoding.ByteOrder = "big", width: int | None = None
    ) -> FieldArray:
        """Elements from bytes of a fixed width each (32 for 255 bits), or arrays of such rows."""
        found = encoding.bytes_to_words(self.prime, data, byteorder=byteorder, width=width)
        return FieldArray(self, found, "canonical")

    def to_bytes(
        self,
        array: FieldArray,
        *,
        byteorder: encoding.ByteOrder = "big",
        width: int | None = None,
    ) -> npt.NDArray[np.uint8]:
        """The elements as bytes, the last axis an element's."""
        own = self._own(array).in_form("canonical")
        return encoding.words_to_bytes(self.prime, own.numpy(), byteorder=byteorder, width=width)

    def from_words(self, data: Words, form: Form) -> FieldArray:
        """Words as they lie in memory, in the form that the caller says they have."""
        if form not in ("canonical", "montgomery"):
            raise ArgumentTypeError(f"a form is 'canonical' or 'montgomery', not {form!r}")
        if form == "montgomery" and self.form == "canonical":
            raise ArgumentTypeError(f"{self.name} has no Montgomery form")
        if not isinstance(data, np.ndarray):
            raise ArgumentTypeError(f"words are a NumPy array, not a {type(data).__name__}")
        bad = words.first_not_below(self.prime, data)
        if bad is not None:
            raise ElementRangeError(self.name, 0, bad)
        return FieldArray(self, data, form)

    # --- element by element ---

    def add(self, a: Operand, b: Operand) -> FieldArray:
        return self._elementwise("add", a, b, commutes=True)

    def sub(self, a: Operand, b: Operand) -> FieldArray:
        return self._elementwise("sub", a, b)

    def mul(self, a: Operand, b: Operand) -> FieldArray:
        return self._elementwise("mul", a, b, commutes=True)

    def neg(self, a: FieldArray) -> FieldArray:
        return self._elementwise("neg", a)

    def double(self, a: FieldArray) -> FieldArray:
        return self._elementwise("double", a)

    def square(self, a: FieldArray) -> FieldArray:
        return self._elementwise("square", a)

    def fma(self, a: Operand, b: Operand, c: Operand) -> FieldArray:
        """a * b + c."""
        return self._elementwise("fma", a, b, c)

    def equal(self, a: Operand, b: Operand) -> npt.NDArray[np.bool_]:
        """Where they are equal, on the host."""
        array, *others = self._alike([a, b], commutes=True)
        found = self._applied("equal", [array, *others])
        host = found.numpy() if isinstance(found, DeviceArray) else found
        return host.astype(np.bool_)

    def select(self, condition: npt.ArrayLike, a: Operand, b: Operand) -> FieldArray:
        """a where the condition holds, else b; the condition is a host's array of a's shape."""
        first, *others = self._alike([a, b])
        chosen = np.array(condition, np.bool_).astype(np.uint32, order="C")
        if chosen.shape != first.shape:
            raise ArgumentShapeError(
                f"{self.name}: a condition of shape {chosen.shape} for elements of {first.shape}"
            )
        where = first.card.put(chosen) if first.on_card else chosen
        return FieldArray(self, self._applied("select", [first, *others], where), self.form)

    def power(self, a: FieldArray, exponent: int) -> FieldArray:
        """Every element to the same power; below 0 of the inverse, where 0 stays 0."""
        array = self._own(a).in_form(self.form)
        exponent, order = _whole(exponent, "an exponent"), self.modulus - 1
        # By Fermat's little theorem; but a power of 0 that is not the 0th stays 0.
        found = _words_of(exponent and (exponent % order or order))
        exponents = (
            self._kept_words(array.card, found) if array.on_card else np.array(found, np.uint32)
        )
        kernel = element_kernel(self.prime, "power", doubles=array.by_doubles)
        result = self.apply(kernel, [array.data, exponents], (len(found),))
        return FieldArray(self, result, self.form)

    def inverse(self, a: FieldArray, *, zero: Literal["zero", "error"] = "zero") -> FieldArray:
        """1 / a; of 0 it is 0, or with `zero="error"` an error that names the first."""
        array = self._own(a).in_form(self.form)
        if zero not in ("zero", "error"):
            raise ArgumentTypeError(f"zero is 'zero' or 'error', not {zero!r}")
        if zero == "error" and array.size:
            found = np.flatnonzero(self.equal(array, 0))
            if found.size:
                raise ZeroDivisionError(f"{self.name}: element {found[0]} is 0, without an inverse")
        data = array.data
        if not isinstance(data, DeviceArray):
            inverses = host_scans.invert(self.prime, data.reshape(-1, *self.prime.element_shape))
            return FieldArray(self, inverses.reshape(data.shape), self.form)
        result = array.card.empty(data.shape, data.dtype)
        if array.size:
            scans.invert(array.card, self.prime, data, result)
        return FieldArray(self, result, self.form)

    # --- along the last axis ---

    def sum(self, a: FieldArray, *, axis: Literal[-1] | None = None) -> FieldArray:
        """The sum of all elements, or of each row."""
        array = self._own(a).in_form(self.form)
        rows, columns, shape = self._rows(array, axis)
        if columns == 0:
            return self._zeros(shape, array)
        data = array.data
        sums: Words | DeviceArray
        if isinstance(data, DeviceArray):
            sums = scans.sum_rows(array.card, self.prime, data, rows, columns)
        else:
            sums = host_scans.sum_rows(self.prime, self._in_rows(data, rows, columns))
        return FieldArray(self, sums, self.form).reshape(*shape)

    def dot(self, a: FieldArray, b: FieldArray, *, axis: Literal[-1] | None = None) -> FieldArray:
        """The sum of the products of elements, of all of them or in each row."""
        return self.sum(self.mul(a, b), axis=axis)

    def prefix_product(self, a: FieldArray) -> FieldArray:
        """Every element times all before it in its row."""
        array = self._own(a).in_form(self.form)
        rows, columns, _ = self._rows(array, -1)
        data = array.data
        if isinstance(data, DeviceArray):
            result = array.card.empty(data.shape, data.dtype)
            if array.size:
                scans.running_products(array.card, self.prime, data, result, rows, columns)
            return FieldArray(self, result, self.form)
        products = host_scans.running_products(self.prime, self._in_rows(data, rows, columns))
        return FieldArray(self, products.reshape(data.shape), self.form)

    def _rows(self, array: FieldArray, axis: int | None) -> tuple[int, int, Shape]:
        """Rows, their length, and the shape of a result of one element for each."""
        if axis not in (None, -1):
            raise ArgumentShapeError(f"axis is -1, the last, or None for all; not {axis}")
        if axis is None or array.ndim < 1:
            return 1, array.size, ()
        *leading, columns = array.shape
        return math.prod(leading), columns, tuple(leading)

    def _in_rows(self, data: Words, rows: int, columns: int) -> Words:
        return data.reshape(rows, columns, *self.prime.element_shape)

    def _zeros(self, shape: Shape, like: FieldArray) -> FieldArray:
        zeros = np.zeros((*shape, *self.prime.element_shape), self.prime.column_dtype)
        data = like.card.put(zeros) if like.on_card else zeros
        return FieldArray(self, data, self.form)

    # --- transforms ---

    def ntt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
    ) -> FieldArray:
        """The values of polynomials, whose coefficients run along the last axis, at the powers of a
        root of unity, or at `coset` times those."""
        return self._transform(a, Way(False, order_in, order_out, coset))

    def intt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
    ) -> FieldArray:
        """The coefficients again, of what `ntt` gave."""
        return self._transform(a, Way(True, order_in, order_out, coset))

    def _transform(self, a: FieldArray, way: Way) -> FieldArray:
        array = self._own(a).in_form(self.form)
        for order in (way.order_in, way.order_out):
            if order not in ("natural", "reversed"):
                raise ArgumentTypeError(f"an order is 'natural' or 'reversed', not {order!r}")
        if way.coset is not None and _whole(way.coset, "a coset's factor") % self.modulus == 0:
            raise ArgumentTypeError(f"{self.name}: a coset's factor is not 0")
        length = array.shape[-1] if array.ndim else 0
        if length < 1 or length & length - 1:
            raise ArgumentShapeError(
                f"a transform takes rows of 2^k elements, not of {length} (shape {array.shape})"
            )
        log_n = length.bit_length() - 1
        if log_n > self.prime.two_adicity:
            raise ArgumentShapeError(
                f"{self.name} has roots of unity of order 2^{self.prime.two_adicity} at most, and "
                f"a transform of 2^{log_n} elements was asked for"
            )
        data = array.data
        if not isinstance(data, DeviceArray):
            rows = self._in_rows(data, array.size // length, length)
            values = host_transform.transform(self.prime, rows, way)
            return FieldArray(self, values.reshape(data.shape), self.form)
        card = array.card
        result = card.empty(data.shape, data.dtype)
        transform(card, self.prime, data, log_n, way, result)
        return FieldArray(self, result, self.form)

    # --- polynomials, their coefficients along the last axis, the constant first ---

    def poly_mul(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """The product of polynomials."""
        return polynomials.multiplied(self, self._own(a), self._own(b))

    def poly_eval(self, a: FieldArray, points: FieldArray) -> FieldArray:
        """One polynomial at many points; at all roots of unity `ntt` is faster."""
        own, at = (self._own(each).in_form(self.form) for each in (a, points))
        _check_one_place([own, at])
        return polynomials.evaluated(self, own, at)

    def poly_divide_vanishing(self, a: FieldArray, n: int) -> tuple[FieldArray, FieldArray]:
        """Quotient and remainder by X^n - 1."""
        own = self._own(a).in_form(self.form)
        return polynomials.divided_by_vanishing(self, own, _whole(n, "n of X^n - 1"))

    # --- how ---

    def apply(
        self,
        kernel: Kernel,
        arrays: Sequence[Words | DeviceArray],
        told: tuple[int, ...] = (),
    ) -> Words | DeviceArray:
        """A kernel on arrays that are all on one card, or all on the host."""
        first = arrays[0]
        assert kernel.types is not None
        out = kernel.types[-1]
        columns = len(kernel.types[0].shape)
        shape = first.shape[: len(first.shape) - columns] + out.shape
        if isinstance(first, DeviceArray):
            card: Card = first.storage.card
            result = card.empty(shape, out.dtype)
            count = first.nbytes // kernel.types[0].nbytes
            if count:
                there = tuple(each for each in arrays if isinstance(each, DeviceArray))
                card.submit([Dispatch(kernel, (*there, result), count, told, strides=True)])
            return result
        assert kernel.reference is not None
        computed: Words = kernel.reference(*arrays)
        return computed.reshape(shape)

    def _elementwise(
        self, operation: str, *operands: Operand, commutes: bool = False
    ) -> FieldArray:
        arrays = self._alike(operands, commutes=commutes)
        return FieldArray(self, self._applied(operation, arrays), self.form)

    def _applied(
        self,
        operation: str,
        arrays: Sequence[FieldArray],
        condition: Words | DeviceArray | None = None,
    ) -> Words | DeviceArray:
        """An element kernel, on a condition first where it takes one."""
        first, *others = arrays
        leading = [] if condition is None else [condition]
        sizes = [each.size for each in (others if condition is None else arrays)]
        repeats = any(size != first.size for size in sizes)
        strides = repeats or first.size > AT_ONCE
        data = [*leading, *(each.data for each in arrays)]
        kernel = element_kernel(
            self.prime,
            operation,
            broadcast=repeats,
            strides=strides,
            doubles=first.by_doubles,
            neighbours=by_neighbours(data),
        )
        told = tuple(0 if size == first.size else size for size in sizes) if repeats else ()
        if repeats and not first.on_card:
            columns = self.prime.element_shape
            whole = [np.resize(each.numpy(), first.shape + columns) for each in arrays]
            data = [*leading, *whole]
            kernel = element_kernel(self.prime, operation)
        return self.apply(kernel, data, told)

    def _alike(self, operands: Sequence[Operand], *, commutes: bool = False) -> list[FieldArray]:
        """The operands as arrays in one place, the first the largest, the others its repeats."""
        arrays = [each for each in operands if isinstance(each, FieldArray)]
        if not arrays:
            raise ArgumentTypeError(f"{self.name}: one operand at least is a FieldArray")
        _check_one_place(arrays)
        made = [self._as_array(each, arrays[0]) for each in operands]
        shape = self._common_shape([each.shape for each in made])
        if commutes and made[0].shape != shape == made[1].shape:
            made.reverse()
        if made[0].shape != shape:
            made[0] = self._repeated(made[0], shape)
        return made

    def _common_shape(self, shapes: Sequence[Shape]) -> Shape:
        """What all are repeated to, over leading axes: a single element, or the last axes."""
        cores = [
            shape[next((axis for axis, n in enumerate(shape) if n != 1), len(shape)) :]
            for shape in shapes
        ]
        longest = max(cores, key=len)
        for core, shape in zip(cores, shapes, strict=True):
            if core != longest[len(longest) - len(core) :]:
                raise ArgumentShapeError(
                    f"{self.name}: shapes {shape} and {longest} do not go together"
                )
        return (1,) * (max(map(len, shapes)) - len(longest)) + longest

    def _repeated(self, array: FieldArray, shape: Shape) -> FieldArray:
        """An array as large as the others need it."""
        if array.size == math.prod(shape):
            return array.reshape(*shape)
        return FieldArray(self, self._applied("add", [self._zeros(shape, array), array]), self.form)

    def _as_array(self, operand: Operand, like: FieldArray) -> FieldArray:
        if isinstance(operand, FieldArray):
            return self._own(operand).in_form(self.form)
        if isinstance(operand, bool) or not isinstance(operand, int | np.integer):
            raise ArgumentTypeError(
                f"{self.name}: an operand is a FieldArray or an integer, not a "
                f"{type(operand).__name__}"
            )
        value = int(operand) % self.modulus
        if not like.on_card:
            return FieldArray(self, self._element(value), self.form)
        card = like.card
        key = "element", self.prime, value
        data = card.kept(key, lambda: card.put(self._element(value)))
        return FieldArray(self, data, self.form)

    def _element(self, value: int) -> Words:
        """A number below p as the words of an array without axes."""
        found = words.from_ints(self.prime, [self.prime.in_form(value)])
        return found.reshape(self.prime.element_shape)

    def _own(self, array: FieldArray) -> FieldArray:
        if not isinstance(array, FieldArray):
            raise ArgumentTypeError(
                f"{self.name}: a FieldArray is wanted, not a {type(array).__name__}; "
                "encode(ints), from_bytes(data) and from_words(words, form) make one"
            )
        if array.field is not self and array.field != self:
            raise ArgumentTypeError(f"an array of {array.field.name}, and this is {self.name}")
        return array

    def _kept_words(self, card: Card, numbers: Iterable[int]) -> DeviceArray:
        found = np.array(list(numbers), np.uint32)
        return card.kept(("words", found.tobytes()), lambda: card.put(found))


def _check_one_place(arrays: Iterable[FieldArray]) -> None:
    if len({id(each.card) if each.on_card else None for each in arrays}) > 1:
        raise ArgumentTypeError(
            "operands on the host and on a card, or on two: gpu.to_device(array) moves one"
        )


def _whole(number: Any, what: str) -> int:
    """A whole number of any kind; a boolean is none."""
    if isinstance(number, bool | np.bool_) or not hasattr(number, "__index__"):
        raise ArgumentTypeError(f"{what} is a whole number, not a {type(number).__name__}")
    return operator.index(number)


def _words_of(number: int) -> list[int]:
    count = max(-(-number.bit_length() // 32), 1)
    return [number >> 32 * index & 0xFFFFFFFF for index in range(count)]
