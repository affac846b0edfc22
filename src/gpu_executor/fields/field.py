"""`Field`, arithmetic modulo a prime, and `FieldArray`, an array of its elements."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.arrays.overlaps import is_same_view, may_overlap, overlaps_itself
from gpu_executor.calls.arguments import describe, parse_shape
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import (
    ArgumentShapeError,
    ArgumentTypeError,
    ArgumentValueError,
    GpuError,
)
from gpu_executor.fields.element_array import check_choice
from gpu_executor.fields.finite_field import (
    FiniteField,
    FiniteFieldArray,
    Operand,
    as_int,
)
from gpu_executor.fields.folding import fold_values
from gpu_executor.fields.layout_array import check_one_place, find_array_device
from gpu_executor.kernel import Kernel
from gpu_executor.kernels.catalogue import find_field_operation
from gpu_executor.ops import elementwise, matrices, polynomials, powers, scans, transforms
from gpu_executor.ops.elementwise import ElementData, Words
from gpu_executor.ops.transforms import Order, TransformOptions
from gpu_executor.primes import NAMED, Prime, encoding, words

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

EXCESS_BYTES = 16
"""Bytes of a random integer beyond those of an element."""
MAX_NAME_DIGITS = 20
"""Digits of a modulus that a field without a name is called by; a longer one is shortened."""


class FieldArray(FiniteFieldArray):
    """Elements of a prime field, on the host or on a device; `Field` makes them.

    `numpy()` returns canonical words, `words()` the words as stored, `tolist()` Python integers.
    """

    __slots__ = ()

    field: Field

    def convert_for(self, kernel: Kernel) -> Self:
        """The array whose words `run` gives to a kernel, in the place of this array.

        A field kernel of the catalogue gets the form that it computes with, which is the form of
        its result too. Another kernel does not say what form it takes, so it gets the words only if
        they have a single form.
        """
        prime, field_operation = self.prime, find_field_operation(kernel)
        if field_operation is not None:
            of, operation = field_operation
            if of.modulus != prime.modulus:
                raise ArgumentTypeError(
                    f"{kernel.name} computes modulo {of.modulus}, and an argument is an array of "
                    f"{prime.name}, modulo {prime.modulus}"
                )
            return self.in_form("montgomery" if operation == "mont_mul" else prime.form)
        if prime.form == "montgomery":
            raise ArgumentTypeError(
                f"{kernel.name} does not say which form of elements it takes, and those of "
                f"{prime.name} have two: pass array.in_form('canonical').data or "
                "array.in_form('montgomery').data"
            )
        return self

    def ints(self) -> npt.NDArray[np.object_]:
        """The elements as Python integers, in a NumPy array of objects."""
        canonical = self.numpy()
        found: npt.NDArray[np.object_] = encoding.words_to_ints(self.prime, canonical)
        return found

    def to_bytes(
        self, *, byteorder: encoding.ByteOrder = "big", width: int | None = None
    ) -> npt.NDArray[np.uint8]:
        """The elements as bytes: an array of shape (..., width).

        Args:
            byteorder (str): "big" or "little".
            width (int): Bytes of an element; None for those of the modulus.
        """
        return self.field.to_bytes(self, byteorder=byteorder, width=width)

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.shape:
            raise ArgumentTypeError(
                f"an array of shape {self.shape} is not a single integer; index it first"
            )
        return int(self.item())


class Field(FiniteField[FieldArray]):
    """The integers modulo an odd prime of up to 768 bits; an integer stands for an element."""

    array_type, array_in_words = FieldArray, "a FieldArray"

    def __init__(
        self, modulus: int, *, name: str | None = None, factors: Sequence[int] = ()
    ) -> None:
        """A field by its modulus; a well-known modulus gives a field that equals the named one.

        Args:
            modulus (int): An odd prime of up to 768 bits.
            name (str): The name of the field in messages; None for a known name, or the digits of
                the modulus.
            factors (sequence of int): The odd prime factors of modulus - 1, which most moduli do
                not need.
        """
        modulus = as_int(modulus, "the modulus")
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
        self.layout = self.prime

    @property
    def order(self) -> int:
        """The number of elements: the modulus."""
        return self.prime.modulus

    def contains(self, other: FiniteField[Any]) -> bool:
        """Whether the field is an extension of another field: a prime field is not.

        Args:
            other (FiniteField): The other field.
        """
        return False

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

    # --- roots of unity ---

    @property
    def generator(self) -> int:
        """The smallest generator of the multiplicative group: its powers are all elements but 0.

        It is found with the prime factors of p - 1; `KernelError` if they are not known and too
        large to be found.
        """
        return self.prime.generator

    def root_of_unity(self, n: int) -> int:
        """A primitive n-th root of unity: generator^((p - 1) / n).

        Its powers are the points of transforms of n elements. The root of n is the m-th power of
        the root of n m. Where the generator is not known, the roots for powers of two are those of
        the smallest quadratic non-residue, which transforms take then.

        Args:
            n (int): The order of the root, a divisor of p - 1.
        """
        order = as_int(n, "n of root_of_unity")
        if order < 1 or (self.modulus - 1) % order:
            raise ArgumentValueError(
                f"{self.name}: there is no root of unity of order {order}: n must be a divisor of "
                "p - 1, 1 or more"
            )
        if order & order - 1:
            return pow(self.generator, (self.modulus - 1) // order, self.modulus)
        return self.prime.root_of_unity(order.bit_length() - 1)

    def domain(
        self, n: int, *, coset: int | None = None, device: Backend | None = None
    ) -> FieldArray:
        """The n points g w^i, i = 0 .. n - 1, with w = `root_of_unity(n)`: those at which `ntt`
        evaluates, in natural order.

        Args:
            n (int): The number of points, a divisor of p - 1; any, not only a power of two.
            coset (int): The factor g; None for 1.
            device (Backend): The executor or backend on whose device the points are; None for the
                host.
        """
        root = self.root_of_unity(n)
        (count,) = parse_shape(n, self.prime.element_bytes)
        first = 1 if coset is None else self._parse_coset(coset)
        place = None if device is None else find_array_device(self.name, device)
        start, factor = (self._wrap(self._make_element(each, place)) for each in (first, root))
        factors = self._wrap(elementwise.broadcast_to(self.layout, factor.data, (count - 1,)))
        return self.prefix_product(self.concatenate([start.reshape(1), factors]))

    # --- conversion ---

    def encode(self, values: Any, *, reduce: bool = False) -> FieldArray:
        """Integers as elements on the host, of the same shape.

        Args:
            values (int or list or numpy.ndarray): Integers, in nested lists or in arrays of any
                integer dtype or of objects.
            reduce (bool): Whether integers are taken modulo p; otherwise those outside of 0 .. p-1
                raise `ElementRangeError`.
        """
        if isinstance(values, FiniteFieldArray):
            raise ArgumentTypeError(
                f"{self.name}: encode takes integers, not an array of {values.field.name}; its "
                "tolist() are integers"
            )
        found = encoding.ints_to_words(self.prime, values, reduce=reduce)
        return FieldArray(self, found, "canonical")

    def from_bytes(
        self,
        data: Any,
        *,
        byteorder: encoding.ByteOrder = "big",
        width: int | None = None,
        reduce: bool = False,
        device: Backend | None = None,
    ) -> FieldArray:
        """Elements from bytes.

        A number that is not below the modulus raises `ElementRangeError` with the index of the
        first one. A GPU converts and checks the numbers itself if they have as many bytes as an
        element in memory.

        Args:
            data (bytes or numpy.ndarray): Numbers one after the other, or an array of uint8 of
                shape (..., width).
            byteorder (str): "big" or "little".
            width (int): Bytes of a number; None for those of the modulus, 32 for 255 bits.
            reduce (bool): Whether numbers are taken modulo p and not refused.
            device (Backend): The executor or backend on whose device the elements are; None for
                the host.
        """
        if device is not None:
            return self._from_bytes_on_device(data, byteorder, width, device, reduce=reduce)
        found = encoding.bytes_to_words(
            self.prime, data, byteorder=byteorder, width=width, reduce=reduce
        )
        return FieldArray(self, found, "canonical")

    def to_bytes(
        self,
        array: FieldArray,
        *,
        byteorder: encoding.ByteOrder = "big",
        width: int | None = None,
    ) -> npt.NDArray[np.uint8]:
        """The elements as bytes: an array of shape (..., width).

        Args:
            array (FieldArray): The elements.
            byteorder (str): "big" or "little".
            width (int): Bytes of an element; None for those of the modulus.
        """
        elements, prime = self._check(array).data, self.prime
        if isinstance(elements, DeviceArray):
            from gpu_executor.ops import element_bytes  # not loaded for the host alone

            big_endian = not encoding.is_little(prime, byteorder)
            size = encoding.check_width(prime, width)
            if element_bytes.can_convert(elements.storage.device, prime, size):
                form = array.form
                return element_bytes.write_bytes(
                    prime, elements, form, big_endian=big_endian
                ).numpy()
        found = array.numpy()
        return encoding.words_to_bytes(prime, found, byteorder=byteorder, width=width)

    def _from_bytes_on_device(
        self,
        data: Any,
        byteorder: encoding.ByteOrder,
        width: int | None,
        device: Backend,
        *,
        reduce: bool,
    ) -> FieldArray:
        from gpu_executor.ops import element_bytes, scalars

        memory = find_array_device(self.name, device)
        prime, size = self.prime, encoding.check_width(self.prime, width)
        big_endian = not encoding.is_little(prime, byteorder)
        if reduce and size == prime.element_bytes and scalars.can_reduce(memory, prime):
            rows, shape = encoding.to_byte_rows(prime, data, size)
            numbers = rows.reshape(*shape, size)
            reduced = scalars.reduce_scalars(memory, prime, numbers, big_endian=big_endian)
            return FieldArray(self, reduced, "canonical")
        if reduce or not element_bytes.can_convert(memory, prime, size):
            found = self.from_bytes(data, byteorder=byteorder, width=width, reduce=reduce)
            return device.to_device(found)  # type: ignore[no-any-return]
        rows, shape = encoding.to_byte_rows(prime, data, size)
        encoded = device.to_device(rows.reshape(*shape, size))
        elements = element_bytes.read_bytes(prime, encoded, big_endian=big_endian)
        elements.storage.device.check(elements)
        return FieldArray(self, elements, "montgomery")

    def full(self, shape: int | Sequence[int], value: int) -> FieldArray:
        """Equal elements on the host; the value is taken modulo p.

        Args:
            shape (int or tuple): The lengths of the axes.
            value (int): The element, taken modulo p.
        """
        return super().full(shape, as_int(value, "the value"))

    def random(
        self,
        shape: int | Sequence[int],
        seed: int | np.random.Generator | None = None,
        *,
        device: Backend | None = None,
    ) -> FieldArray:
        """Uniformly distributed elements; not for secrets. A seed gives the same ones everywhere.

        Args:
            shape (int or tuple): The lengths of the axes.
            seed (int or numpy.random.Generator): What determines the elements; None for new ones in
                every call.
            device (Backend): The executor or backend on whose device the elements are; None for
                the host.
        """
        prime = self.prime
        lengths = parse_shape(shape, prime.element_bytes)
        place = None if device is None else find_array_device(self.name, device)
        # Integers of 128 bits more than p are uniform modulo p within 2^-128.
        width = prime.element_bytes + EXCESS_BYTES
        drawn = _make_generator(seed).bytes(math.prod(lengths) * width)
        if place is not None and prime.element_bytes >= EXCESS_BYTES:
            from gpu_executor.ops import scalars  # not loaded for the host alone

            if scalars.can_reduce(place, prime):
                rows = np.frombuffer(drawn, np.uint8).reshape(*lengths, width)
                return self._reduce_on_device(rows, place)
        numbers = (drawn[at : at + width] for at in range(0, len(drawn), width))
        values = [int.from_bytes(each, "little") % prime.modulus for each in numbers]
        found = words.from_ints(prime, values).reshape((*lengths, *prime.element_shape))
        array = FieldArray(self, found, "canonical")
        return array if place is None else array.copy_to_device(place)

    def _reduce_on_device(self, rows: npt.NDArray[np.uint8], device: ArrayDevice) -> FieldArray:
        """Little-endian numbers, `EXCESS_BYTES` longer than an element, along the last axis, modulo
        p on a device."""
        from gpu_executor.ops import scalars

        size = self.prime.element_bytes
        high = np.zeros((*rows.shape[:-1], size), np.uint8)
        high[..., :EXCESS_BYTES] = rows[..., size:]
        first, second = (
            self._wrap(
                scalars.reduce_scalars(device, self.prime, each, big_endian=False), "canonical"
            )
            for each in (rows[..., :size], high)
        )
        return self.fma(second, self.prime.r, first)

    # --- powers and squares ---

    def power(self, a: FieldArray, exponent: int) -> FieldArray:
        """Every element to one power; a negative exponent inverts, and 0 stays 0.

        Args:
            a (FieldArray): The elements.
            exponent (int): The power, of any sign.
        """
        number = as_int(exponent, "the exponent")
        base = a.in_form(self.form) if self._check(a).on_device else a
        return base._with(powers.power(self.prime, base.data, number, base.form))

    def legendre(self, a: FieldArray) -> npt.NDArray[np.int8]:
        """1 for squares, -1 for other elements, 0 for 0: an array on the host.

        Args:
            a (FieldArray): The elements.
        """
        found = self.power(a, (self.modulus - 1) // 2)
        signs = np.where(self.equal(found, 1), 1, -1)
        return np.where(self.equal(found, 0), 0, signs).astype(np.int8)

    # --- transforms ---

    def ntt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
        device: Backend | None = None,
        out: FieldArray | None = None,
    ) -> FieldArray:
        """The values of polynomials at the powers of a root of unity, or at `coset` times those.

        Args:
            a (FieldArray): The coefficients along the last axis, a power of two of them.
            coset (int): The factor g of the points g w^i; None for 1.
            order_in (str): The order of a, "natural" or "reversed": by bit-reversed index.
            order_out (str): The order of the result, "natural" or "reversed".
            device (Backend): The executor or backend that transforms an array of the host; the
                result is on the host again.
            out (FieldArray): Where the result is written: a itself, or an array that does not
                overlap it; None for a new array.
        """
        options = self._make_options(False, order_in, order_out, coset)
        return self._write(partial(self._transform, options), a, self._check(a).shape, device, out)

    def intt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
        device: Backend | None = None,
        out: FieldArray | None = None,
    ) -> FieldArray:
        """The coefficients of the polynomials that have these values: the inverse of `ntt`.

        Args:
            a (FieldArray): The values along the last axis, a power of two of them.
            coset (int): The factor g of the points g w^i; None for 1.
            order_in (str): The order of a, "natural" or "reversed": by bit-reversed index.
            order_out (str): The order of the result, "natural" or "reversed".
            device (Backend): The executor or backend that transforms an array of the host; the
                result is on the host again.
            out (FieldArray): Where the result is written: a itself, or an array that does not
                overlap it; None for a new array.
        """
        options = self._make_options(True, order_in, order_out, coset)
        return self._write(partial(self._transform, options), a, self._check(a).shape, device, out)

    def lde(
        self,
        a: FieldArray,
        blowup: int,
        coset: int | None = None,
        *,
        device: Backend | None = None,
        out: FieldArray | None = None,
    ) -> FieldArray:
        """Low-degree extension: the values of the same polynomials on a larger domain.

        The result has the values at the n * `blowup` powers of a root of unity, or at `coset` times
        those, in natural order.

        Args:
            a (FieldArray): The values of the polynomials at the n powers of a root of unity, in
                natural order along the last axis.
            blowup (int): The length of the result divided by n, a power of two.
            coset (int): The factor g of the points g w^i of the result; None for 1.
            device (Backend): The executor or backend that transforms an array of the host; the
                result is on the host again.
            out (FieldArray): Where the result is written: a itself, or an array that does not
                overlap it; None for a new array.
        """
        factor = as_int(blowup, "blowup")
        if factor < 1 or factor & factor - 1:
            raise ArgumentTypeError(
                f"{self.name}: blowup must be a power of two, 1 or more, not {blowup}"
            )
        shape = self._check(a).shape
        transforms.check_length(self.prime, shape)
        *rows, length = shape
        extended = (*rows, length * factor)
        transforms.check_length(self.prime, extended)
        # An inverse transform on the coset 1/g leaves coefficient i times g^i.
        inverse = None if coset is None else self._invert_scalar(self._parse_coset(coset))

        def extend(values: FieldArray) -> FieldArray:
            order = transforms.get_extension_order(self.prime, self._load(values), extended[-1])
            coefficients = self.intt(values, coset=inverse, order_out=order)
            return self._wrap(
                transforms.extend(self.prime, self._load(coefficients), factor, order)
            )

        return self._write(extend, a, extended, device, out)

    def fold(
        self,
        values: FieldArray,
        alpha: Any,
        arity: int = 2,
        *,
        order: Order = "natural",
        coset: int | None = None,
    ) -> Any:
        """One step of folding in FRI: values of polynomials on a domain to values of the folded
        polynomials on the domain of the powers x^arity.

        With f(x) = f_0(x^arity) + x f_1(x^arity) + ..., the result has the values of f_0(y) + alpha
        f_1(y) + alpha^2 f_2(y) + ... at the points y = x^arity, in the order of the values. It is
        an array of alpha's field.

        Args:
            values (FieldArray): The values at the powers of a root of unity, or at `coset` times
                those, along the last axis, a power of two of them; as `ntt` returns them.
            alpha (int or array): The factor: an integer, or an array without axes of this field or
                of an extension of it.
            arity (int): How many values become one: 2, 4, 8 or 16.
            order (str): The order of the values and of the results, "natural" or "reversed": by
                bit-reversed index.
            coset (int): The factor g of the points g w^i; None for 1. The results are at
                g^arity w^(i arity).
        """
        if isinstance(alpha, FiniteFieldArray) and alpha.field.contains(self):
            extension: Any = alpha.field
            return extension.fold(values, alpha, arity, order=order, coset=coset)
        return fold_values(self, self, values, alpha, arity, order, coset)

    # --- polynomials: coefficients along the last axis, the constant term first ---

    def poly_mul(self, a: Operand, b: Operand) -> FieldArray:
        """The product of polynomials; leading axes are a batch.

        Args:
            a (FieldArray or list): Coefficients, the constant term first.
            b (FieldArray or list): The coefficients of the other polynomials.
        """
        first, second = self._load_together(a, b)
        return self._wrap(polynomials.multiply(self.prime, first.data, second.data))

    def poly_eval(self, a: Operand, points: Operand) -> FieldArray:
        """The values of one polynomial at many points; for all roots of unity `ntt` is faster.

        Args:
            a (FieldArray or list): The coefficients, along one axis.
            points (FieldArray or int or list or numpy.ndarray): The points, of any shape; integers
                are taken modulo p.
        """
        coefficients, at = self._load_together(a, points)
        return self._wrap(polynomials.evaluate(self.prime, coefficients.data, at.data))

    def poly_divmod(self, a: Operand, b: Operand) -> tuple[FieldArray, FieldArray]:
        """Quotient and remainder of polynomials by one polynomial of degree d.

        Of n coefficients the quotient has n - d, or none, and the remainder has d. Highest
        coefficients of b that are 0 do not count. The call waits for the device, to find d. A
        divisor without coefficients other than 0 raises `ElementDivisionError`.

        Args:
            a (FieldArray or list): Coefficients along the last axis, the constant term first;
                leading axes are a batch.
            b (FieldArray or list): The coefficients of the divisor, along one axis.
        """
        from gpu_executor.fields.polynomial_division import divide  # not loaded for fields alone

        return divide(self, *self._load_together(a, b))

    def poly_divide_vanishing(self, a: FieldArray, n: int) -> tuple[FieldArray, FieldArray]:
        """Quotient and remainder of one polynomial by X^n - 1.

        Args:
            a (FieldArray): The coefficients, along one axis.
            n (int): The degree of the divisor.
        """
        coefficients = self._load(a)
        degree = as_int(n, "n of X^n - 1")
        quotient, remainder = polynomials.divide_by_vanishing(self.prime, coefficients, degree)
        return self._wrap(quotient), self._wrap(remainder)

    def interpolate(self, x: Operand, y: Operand) -> FieldArray:
        """The polynomials of degree below n with n given values; for roots of unity `intt` is
        faster.

        A repeated point is an error that names the first. On a device it is raised when the result
        is fetched, or an array computed from it.

        Args:
            x (FieldArray or list): The n points, all different, along one axis.
            y (FieldArray or list): The values along the last axis; leading axes are a batch.
        """
        from gpu_executor.fields.interpolation import interpolate  # not loaded for fields alone

        found: FieldArray = interpolate(self, *self._load_together(x, y))
        return found

    def _load_together(self, *operands: Operand) -> list[FieldArray]:
        """Arrays, and integers in lists or arrays, as arrays in one place, in the form in which the
        field computes."""
        arrays: list[Any] = [each for each in operands if isinstance(each, FiniteFieldArray)]
        check_one_place(map(self._check, arrays))
        loaded = (
            self._load_values(each, arrays[0]) if arrays else self.encode(each, reduce=True)
            for each in operands
        )
        return [each.in_form(self.form) for each in loaded]

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

    def _compute_words(
        self, operation: str, operands: list[ElementData], commutes: bool
    ) -> ElementData:
        return elementwise.compute(self.prime, operation, operands, commutes=commutes)

    def _compare_words(self, a: ElementData, b: ElementData) -> npt.NDArray[np.bool_]:
        found = elementwise.compute(self.prime, "equal", [a, b], commutes=True)
        return np.asarray(found).astype(np.bool_)

    def _select_words(
        self, condition: npt.NDArray[np.bool_], a: ElementData, b: ElementData
    ) -> ElementData:
        return elementwise.select(self.prime, condition, a, b)

    def _invert_words(self, x: ElementData) -> ElementData:
        return scans.invert(self.prime, x)

    def _sum_rows(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return scans.sum_rows(self.prime, x, rows, columns)

    def _multiply_rows(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return scans.multiply_rows(self.prime, x, rows, columns)

    def _add_prefixes(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return scans.add_prefixes(self.prime, x, rows, columns)

    def _multiply_prefixes(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return scans.multiply_prefixes(self.prime, x, rows, columns)

    def _multiply_matrices(self, a: ElementData, b: ElementData) -> ElementData:
        return matrices.multiply(self.prime, a, b)

    def _transform(self, options: TransformOptions, a: FieldArray) -> FieldArray:
        return self._wrap(transforms.transform(self.prime, self._load(a), options))

    def _make_options(
        self, inverse: bool, order_in: Order, order_out: Order, coset: int | None
    ) -> TransformOptions:
        for name, order in (("order_in", order_in), ("order_out", order_out)):
            check_choice(name, order, ("natural", "reversed"))
        factor = None if coset is None else self._parse_coset(coset)
        return TransformOptions(inverse, order_in, order_out, factor)

    def _parse_coset(self, coset: int) -> int:
        """The coset as a Python integer modulo p, which is not 0."""
        factor = as_int(coset, "coset") % self.modulus
        if not factor:
            raise ArgumentTypeError(
                f"{self.name}: coset must not be a multiple of the modulus, as {coset} is"
            )
        return factor

    # --- results in arrays of the caller's, and on the host after a device has computed them ---

    def _write(
        self,
        compute: Callable[[FieldArray], FieldArray],
        a: FieldArray,
        shape: Shape,
        device: Backend | None,
        out: FieldArray | None,
    ) -> FieldArray:
        """compute(a), which has the given shape, in `out` or in a new array.

        With `device`, `a` is on the host: the device computes, and the result is on the host again.
        """
        if out is not None:
            self._check_out(a, shape, out)
        if device is None:
            result = compute(a)
            return result if out is None else out._overwrite(result)
        memory = find_array_device(self.name, device)
        if a.on_device:
            raise ArgumentTypeError(
                f"{self.name}: device= is for an array on the host, and this one is on a device, "
                "which transforms it: leave device= out"
            )
        if memory.is_recording:
            raise GpuError(
                f"{self.name}: a graph is being recorded, which has no arrays of the host; leave "
                "device= out and transform arrays of the device"
            )
        source: Words = a.data  # type: ignore[assignment]
        form = self.form if out is None else out.form
        x = self._wrap(memory.put(source, borrow=True), a.form)
        try:
            y: DeviceArray = compute(x).in_form(form).data  # type: ignore[assignment]
            found = memory.fetch(y, None if out is None else out.data)  # type: ignore[arg-type]
        except BaseException:
            with contextlib.suppress(GpuError):
                x.device.wait_for(x.data)  # type: ignore[arg-type]
            raise
        return self._wrap(found, form) if out is None else out

    def _check_out(self, a: FieldArray, shape: Shape, out: FieldArray) -> None:
        """Refuse an `out` that cannot hold the result."""
        if not isinstance(out, FieldArray):
            raise ArgumentTypeError(
                f"{self.name}: out is {describe(out)}; it takes a FieldArray, such as zeros(shape)"
            )
        if out.field != self:
            given, own = self._describe_difference(out.field)
            raise ArgumentTypeError(f"out is an array of {given}, and the result is one of {own}")
        if out.shape != shape:
            raise ArgumentShapeError(
                f"{self.name}: out has shape {out.shape}, and the result has shape {shape}"
            )
        check_one_place([a, out])
        source, target = (
            each.make_pattern() if isinstance(each, DeviceArray) else each
            for each in (a.data, out.data)
        )
        if isinstance(out.data, np.ndarray) and not out.data.flags.writeable:
            raise ArgumentTypeError(
                f"{self.name}: out is read-only; zeros(shape) and copy() make an array to write to"
            )
        if overlaps_itself(target):
            raise ArgumentShapeError(
                f"{self.name}: elements of out share memory, as in a broadcast array; copy() makes "
                "an array of its own"
            )
        if isinstance(a.data, DeviceArray) and a.data.storage is not out.data.storage:  # type: ignore[union-attr]
            return
        if may_overlap(source, target) and not is_same_view(source, target):
            raise ArgumentShapeError(
                f"{self.name}: out overlaps the argument; it must be the argument itself, or share "
                "no memory with it"
            )

    def _make_element(self, value: int, device: ArrayDevice | None) -> ElementData:
        return elementwise.make_element(self.prime, value, device)

    def _parse_scalar(self, operand: Operand) -> int:
        """An integer modulo p."""
        if isinstance(operand, bool) or not isinstance(operand, int | np.integer):
            raise ArgumentTypeError(
                f"{self.name}: an operand must be a FieldArray or an integer, not "
                f"{type(operand).__name__}; encode(values) makes a FieldArray of integers"
            )
        return int(operand) % self.modulus

    def _invert_scalar(self, value: int) -> int:
        return pow(value, -1, self.modulus) if value else 0

    def _list_constructors(self) -> str:
        return "encode(ints), from_bytes(data) and from_words(words, form)"

    def _describe_difference(self, other: FiniteField[Any]) -> tuple[str, str]:
        given, own = other.name, self.name
        if given == own:
            given, own = (f"{own} modulo {each.modulus}" for each in (other, self))
        return given, own


def _make_generator(seed: Any) -> np.random.Generator:
    """NumPy's generator of random numbers for a seed."""
    try:
        return np.random.default_rng(seed)
    except TypeError:
        raise ArgumentTypeError(
            f"seed is {describe(seed)}; it must be an integer, a generator of NumPy's or None"
        ) from None
    except ValueError as error:
        raise ArgumentValueError(f"seed is {seed!r}: {error}") from None


def _name_modulus(modulus: int) -> str:
    """The name of a field that the caller gave no name: it tells moduli apart."""
    shown = shorten(modulus)
    bits = "" if shown.isdigit() else f" of {modulus.bit_length()} bits"
    return f"prime {shown}{bits}"


def shorten(number: int) -> str:
    """The digits of a number, or the first and the last ones of a long one."""
    digits = str(number)
    if len(digits) <= MAX_NAME_DIGITS:
        return digits
    shown = f"{number:#x}"
    return f"{shown[:10]}...{shown[-8:]}"


def _restore_field(modulus: int, name: str, factors: tuple[int, ...]) -> Field:
    """A field that was pickled; a well-known one is the field of this module."""
    known = NAMED_FIELDS.get(name)
    if known is not None and (known.modulus, known.prime.factors) == (modulus, factors):
        return known
    return Field(modulus, name=name, factors=factors)


NAMED_FIELDS = {name: Field(prime.modulus) for name, prime in NAMED.items()}

BLS12_381_FQ = NAMED_FIELDS["bls12_381_fq"]
BLS12_381_FR = NAMED_FIELDS["bls12_381_fr"]
BN254_FQ = NAMED_FIELDS["bn254_fq"]
BN254_FR = NAMED_FIELDS["bn254_fr"]
BLS12_377_FQ = NAMED_FIELDS["bls12_377_fq"]
BLS12_377_FR = NAMED_FIELDS["bls12_377_fr"]
SECP256K1_FQ = NAMED_FIELDS["secp256k1_fq"]
SECP256K1_FR = NAMED_FIELDS["secp256k1_fr"]
CURVE25519_FQ = NAMED_FIELDS["curve25519_fq"]
PALLAS_FQ = NAMED_FIELDS["pallas_fq"]
VESTA_FQ = NAMED_FIELDS["vesta_fq"]
PALLAS_FR, VESTA_FR = VESTA_FQ, PALLAS_FQ
"""The base field of each curve is the scalar field of the other."""
GOLDILOCKS = NAMED_FIELDS["goldilocks"]
BABYBEAR = NAMED_FIELDS["babybear"]
KOALABEAR = NAMED_FIELDS["koalabear"]
MERSENNE31 = NAMED_FIELDS["mersenne31"]
