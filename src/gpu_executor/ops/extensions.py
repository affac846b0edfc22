"""Operations on elements of extension fields, as operations on their coefficients.

Elements are NumPy arrays or device arrays, in the form in which the prime computes. The
coefficients of an element lie one after the other, so a sum of elements is a sum of prime elements
over one more axis. On a device an operation is one submission, unless it says otherwise. A product
is one dispatch if the base is a prime field. Other products, and those on the host, are
Karatsuba's: d (d + 1) / 2 products in the base, all in one call.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayCopy, ArrayDevice, Dispatch, Step
from gpu_executor.ops import elementwise, matrices, scans
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    broadcast_to,
    count_elements,
    get_device,
    get_shape,
)
from gpu_executor.ops.operation import operation, uniform_operation
from gpu_executor.primes import Extension, Form, Prime, PrimeOrExtension, extension, words
from gpu_executor.primes.extension import Scalar

COEFFICIENTWISE = ("add", "sub", "neg", "double")
"""The operations that are operations on single coefficients."""
MAX_SMALL = 16
"""Constants up to this absolute value are multiplied by additions."""
LARGE = 0x80
"""What stands for a larger constant in the push words of a product."""
MIN_NUMPY_POWERS = 512
"""From this many elements on, powers on the host are computed with NumPy. With fewer elements
Python's integers are faster: a product of arrays takes at least 0.2 ms."""
WINDOW_BITS = 3
"""Bits of an exponent that one product of a power takes care of. More bits need more memory: the
odd powers below 2^WINDOW_BITS of all elements."""
MAX_STEPS = 256
"""Steps of a power that are submitted together: what they refer to stays allocated until then."""


def make_element(field: PrimeOrExtension, value: Scalar, device: ArrayDevice | None) -> ElementData:
    """One element without axes, its integers in 0 .. p-1, on the device (cached) or on the host."""
    if isinstance(field, Prime):
        return elementwise.make_element(field, value, device)
    return _make_constants(field, (value,), device)[0]


def make_full(field: Extension, shape: Shape, value: Scalar, like: ElementData) -> ElementData:
    """An array of equal elements in the place of `like`."""
    return broadcast_to(field, make_element(field, value, get_device(like)), shape).copy()


def _make_host_elements(field: PrimeOrExtension, values: Sequence[Scalar]) -> Words:
    prime = _get_prime(field)
    integers = [prime.in_form(each) for value in values for each in extension.flatten(value)]
    return words.from_ints(prime, integers).reshape(len(values), *field.element_shape)


def _make_constants(
    field: PrimeOrExtension, values: tuple[Scalar, ...], device: ArrayDevice | None
) -> ElementData:
    """An array of elements, cached on the device."""
    if device is None:
        return _make_host_elements(field, values)
    key = ("elements", field, values)
    return device.cache(key, lambda: device.put(_make_host_elements(field, values)))


def _get_prime(field: PrimeOrExtension) -> Prime:
    return field if isinstance(field, Prime) else field.prime


def get_coefficient(field: Extension, x: ElementData, index: int) -> ElementData:
    """A view of one coefficient of every element: elements of the base."""
    item: Any = (..., index, *[slice(None)] * len(field.base.element_shape))
    return x[item]


# --- operations ---


@uniform_operation
def compute(
    field: Extension, operation: str, operands: Sequence[ElementData], *, commutes: bool = False
) -> ElementData:
    """`add`, `sub`, `neg`, `double`, `mul`, `square` or `fma` of elements, which are broadcast."""
    if operation in COEFFICIENTWISE:
        return elementwise.compute(field.prime, operation, operands, commutes=commutes)
    work = _Calculation(operands[0])
    a, b = operands[0], operands[-1 if operation == "square" else 1]
    result = work.multiply(field, a, b)
    if operation == "fma":
        result = work.apply(field, "add", result, operands[2])
    work.submit()
    return result


@uniform_operation
def multiply_by_base(field: Extension, x: ElementData, factors: ElementData) -> ElementData:
    """Elements times elements of the base, which are broadcast: a product per coefficient."""
    work = _Calculation(x)
    result = work.scale(field, x, factors)
    work.submit()
    return result


@uniform_operation
def embed(field: Extension, x: ElementData) -> ElementData:
    """Elements of the base as elements of the extension."""
    work, base = _Calculation(x), field.base
    zero = make_element(base, extension.make_zero(base), work.device)
    zero = broadcast_to(base, zero, get_shape(base, x))
    result = work.join_coefficients(field, [x, *[zero] * (field.degree - 1)])
    work.submit()
    return result


@uniform_operation
def join(field: Extension, coefficients: Sequence[ElementData]) -> ElementData:
    """Elements from their coefficients, which are broadcast."""
    shapes = [get_shape(field.base, each) for each in coefficients]
    shape = elementwise.find_common_shape(field, shapes)
    work = _Calculation(coefficients[0])
    full = [broadcast_to(field.base, each, shape) for each in coefficients]
    result = work.join_coefficients(field, full)
    work.submit()
    return result


def compare(field: Extension, a: ElementData, b: ElementData) -> npt.NDArray[np.bool_]:
    """Whether elements are equal, on the host; they are broadcast."""
    host = np.asarray(elementwise.compute(field.prime, "equal", [a, b], commutes=True))
    axes = tuple(range(host.ndim - len(field.degrees), host.ndim))
    return np.asarray(host.all(axis=axes))


def select(
    field: Extension, condition: npt.NDArray[np.bool_], a: ElementData, b: ElementData
) -> ElementData:
    """a where the condition, an array on the host, is true, else b; all are broadcast."""
    flags = condition.reshape(condition.shape + (1,) * len(field.degrees))
    return elementwise.select(field.prime, flags, a, b)


def convert(field: Extension, data: ElementData, form: Form) -> ElementData:
    """Elements of a prime in Montgomery form, converted to `form` from the other form."""
    return elementwise.convert(field.prime, data, form)


@uniform_operation
def invert(field: Extension, x: ElementData) -> ElementData:
    """1 / x, and 0 for 0: the product of the other conjugates divided by the norm, with one batch
    inversion in the prime field."""
    work = _Calculation(x)
    result = work.invert(field, x)
    work.submit()
    return result


@uniform_operation
def compute_norms(field: Extension, x: ElementData) -> ElementData:
    """The product of all conjugates of x, which is an element of the base."""
    work = _Calculation(x)
    result = work.compute_norms(field, x, work.multiply_conjugates(field, x))
    work.submit()
    return result.copy()


@uniform_operation
def apply_frobenius(field: Extension, x: ElementData, times: int) -> ElementData:
    """x^(p^times), p the prime."""
    work = _Calculation(x)
    result = work.apply_frobenius(field, x, times % field.total_degree)
    work.submit()
    return x.copy() if result is x else result


def power(field: Extension, x: ElementData, exponent: int) -> ElementData:
    """Every element to one power; a negative exponent inverts first, and the inverse of 0 is 0."""
    order = field.order - 1
    # As in `elementwise.power`, x^order = 1 for x != 0, and an exponent other than 0 stays so.
    reduced = exponent and (exponent % order or order)
    if not reduced:
        return make_full(field, get_shape(field, x), extension.make_one(field), x)
    return _power(field, x, reduced)


@operation
def _power(field: Extension, x: ElementData, exponent: int) -> ElementData:
    if count_elements(field, x) < MIN_NUMPY_POWERS:
        return _power_of_scalars(field, np.asarray(x), exponent)
    return _Calculation(x).power(field, x, exponent)


@_power.by_steps
def _power_by_steps(field: Extension, x: DeviceArray, exponent: int) -> ElementData:
    work = _Calculation(x)
    result = work.power(field, x, exponent)
    work.submit()
    return result


def _power_of_scalars(field: Extension, x: Words, exponent: int) -> Words:
    prime, step = field.prime, field.total_degree
    factor = 1 if prime.canonical else prime.r_inverse
    integers = [each * factor % prime.modulus for each in words.to_ints(prime, x)]
    scalars = (
        extension.unflatten(field, integers[at : at + step]) for at in range(0, len(integers), step)
    )
    powers = [extension.power(field, each, exponent) for each in scalars]
    return _make_host_elements(field, powers).reshape(x.shape)


# --- over many elements ---


def sum_rows(field: Extension, x: ElementData, rows: int, columns: int) -> ElementData:
    """The sum of each row, as an array of `rows` elements; `columns` is at least 1."""
    prime, degree = field.prime, field.total_degree
    table = x.reshape(rows, columns, degree, *prime.element_shape)
    sums = scans.sum_rows(
        prime, elementwise.transpose(prime, table, (0, 2, 1)), rows * degree, columns
    )
    return elementwise.reshape(field, sums, (rows,))


@uniform_operation
def multiply_rows(field: Extension, x: ElementData, rows: int, columns: int) -> ElementData:
    """The product of each row, as an array of `rows` elements; `columns` is at least 1."""
    work = _Calculation(x)
    table = elementwise.reshape(field, x, (rows, columns))
    multiply = functools.partial(work.multiply, field)
    products = scans.fold_rows(multiply, work.join_columns, table)
    work.submit()
    found = elementwise.reshape(field, products, (rows,))
    return found.copy() if columns == 1 else found


def add_prefixes(field: Extension, x: ElementData, rows: int, columns: int) -> ElementData:
    """y[i] = x[0] + x[1] + ... + x[i] in every row."""
    prime, degree = field.prime, field.total_degree
    table = x.reshape(rows, columns, degree, *prime.element_shape)
    by_coefficient = elementwise.transpose(prime, table, (0, 2, 1))
    sums = scans.add_prefixes(prime, by_coefficient, rows * degree, columns)
    return elementwise.transpose(prime, sums, (0, 2, 1)).reshape(x.shape)


@uniform_operation
def multiply_prefixes(field: Extension, x: ElementData, rows: int, columns: int) -> ElementData:
    """y[i] = x[0] * x[1] * ... * x[i] in every row."""
    work = _Calculation(x)
    table = elementwise.reshape(field, x, (rows, columns))
    multiply = functools.partial(work.multiply, field)
    products = scans.combine_prefixes_pairwise(multiply, work.interleave_columns, table)
    work.submit()
    return (products.copy() if products is table else products).reshape(x.shape)


def multiply_matrices(field: Extension, a: ElementData, b: ElementData) -> ElementData:
    """a @ b by the rules of `np.matmul`: one product of matrices of prime elements.

    Row i of the matrix of an element y has the coefficients of e_i y, e_i the i-th element of the
    basis over the prime field. So the coefficients of x, as a row, times that matrix are those of
    x y. Every element of b is replaced by its matrix.
    """
    left, right = (get_shape(field, each) for each in (a, b))
    matrices.check_shapes(field, left, right)
    prime, degree = field.prime, field.total_degree
    basis = tuple(
        extension.unflatten(field, [int(i == at) for i in range(degree)]) for at in range(degree)
    )
    constants = _make_constants(field, basis, get_device(b))
    apart = elementwise.reshape(field, b, (*right, 1))
    # Axes: those of b, the element of the basis, the coefficient.
    rows = compute(field, "mul", [apart, constants], commutes=True)
    *batch, k, n = right if len(right) > 1 else (*right, 1)
    table = rows.reshape(*batch, k, n, degree, degree, *prime.element_shape)
    axes = [*range(len(batch)), *(len(batch) + each for each in (0, 2, 1, 3))]
    table = elementwise.transpose(prime, table, axes)
    expanded = elementwise.reshape(prime, table, (*batch, k * degree, n * degree))
    flat = elementwise.reshape(prime, a, (*left[:-1], left[-1] * degree))
    product = matrices.multiply(prime, flat, expanded)
    *leading, columns = get_shape(prime, product)
    shape = (*leading, columns // degree) if len(right) > 1 else tuple(leading)
    return elementwise.reshape(field, product, shape)


# --- calculations of several steps ---


class _Calculation:
    """Operations on elements in one place. On a device their steps are collected, and `submit`
    submits them together."""

    def __init__(self, like: ElementData) -> None:
        self.device = get_device(like)
        self._steps: list[Step] = []

    def submit(self) -> None:
        """Submit the steps that were collected."""
        if self._steps:
            assert self.device is not None
            self.device.submit(self._steps)
            self._steps = []

    def apply(self, field: PrimeOrExtension, operation: str, *operands: ElementData) -> ElementData:
        """An operation on single coefficients."""
        return elementwise.compute(_get_prime(field), operation, list(operands), steps=self._steps)

    # --- arrays ---

    def _stack(self, parts: Sequence[ElementData], axis: int) -> ElementData:
        """Arrays of one shape along a new axis of words."""
        if self.device is None:
            return np.stack([np.asarray(each) for each in parts], axis=axis)
        shape = parts[0].shape
        made = self.device.empty((*shape[:axis], len(parts), *shape[axis:]), parts[0].dtype)
        for index, each in enumerate(parts):
            self._copy(each, made[(*[slice(None)] * axis, index)])
        return made

    def _copy(self, source: ElementData, target: DeviceArray) -> None:
        assert isinstance(source, DeviceArray)
        if source.size:
            self._steps.append(ArrayCopy(source, target))

    def join_coefficients(self, field: Extension, coefficients: list[ElementData]) -> ElementData:
        """Elements from their coefficients, all of one shape."""
        axis = len(get_shape(field.base, coefficients[0]))
        return self._stack(coefficients, axis)

    def join_columns(self, parts: Sequence[ElementData]) -> ElementData:
        """Arrays one behind the other along axis 1."""
        if self.device is None:
            return np.concatenate([np.asarray(each) for each in parts], axis=1)
        rows, _, *rest = parts[0].shape
        columns = sum(each.shape[1] for each in parts)
        made = self.device.empty((rows, columns, *rest), parts[0].dtype)
        start = 0
        for each in parts:
            self._copy(each, made[:, start : start + each.shape[1]])
            start += each.shape[1]
        return made

    def interleave_columns(
        self, first: ElementData, odd: ElementData, even: ElementData
    ) -> ElementData:
        """Rows of their first element, those at odd indices and those at even indices from 2 on."""
        if self.device is None:
            return scans.interleave_columns(*map(np.asarray, (first, odd, even)))
        rows, count, *rest = odd.shape
        made = self.device.empty((rows, 1 + count + even.shape[1], *rest), odd.dtype)
        self._copy(first, made[:, :1])
        self._copy(odd, made[:, 1::2])
        self._copy(even, made[:, 2::2])
        return made

    # --- products ---

    def multiply(
        self,
        field: PrimeOrExtension,
        a: ElementData,
        b: ElementData,
        out: DeviceArray | None = None,
    ) -> ElementData:
        """a * b, which are broadcast; in `out` if it is given and a product is one dispatch."""
        if isinstance(field, Prime):
            operation = ("square", [a]) if a is b else ("mul", [a, b])
            return elementwise.compute(field, *operation, commutes=True, steps=self._steps)
        is_square = a is b
        a, b = elementwise.broadcast(field, [a, b], commutes=True)
        if not count_elements(field, a):
            return a.copy()
        if isinstance(a, DeviceArray) and isinstance(b, DeviceArray):
            if isinstance(field.base, Prime):
                return self._dispatch_product(field, field.base, a, b, out)
            b = broadcast_to(field, b, get_shape(field, a))
        return self._multiply_by_parts(field, a, a if is_square else b)

    def _dispatch_product(
        self,
        field: Extension,
        prime: Prime,
        a: DeviceArray,
        b: DeviceArray,
        out: DeviceArray | None,
    ) -> DeviceArray:
        device = self.device
        assert device is not None
        kernel = scans.make_scan_kernel(device, prime, "extension_products")
        values, smalls = _encode_reduction(field, prime)
        table = _make_constants(prime, values, device)
        assert isinstance(table, DeviceArray)
        result = device.empty(a.shape, a.dtype) if out is None else out
        period = 0 if a.size == b.size else count_elements(field, b)
        self._steps.append(
            Dispatch(
                kernel,
                (a, b, table, result),
                count_elements(prime, a),
                (field.degree, period, *smalls),
                grid_stride=True,
                elementwise=field.degree,
            )
        )
        return result

    def _multiply_by_parts(self, field: Extension, a: ElementData, b: ElementData) -> ElementData:
        """Karatsuba's product of elements of one shape: a_i b_j + a_j b_i is
        (a_i + a_j) (b_i + b_j) - a_i b_i - a_j b_j."""
        base, degree = field.base, field.degree
        left = self._add_pairs(field, a)
        right = left if a is b else self._add_pairs(field, b)
        products = self.multiply(base, left, right)
        squares = [products[i] for i in range(degree)]
        sums: list[ElementData | None] = [None] * (2 * degree - 1)
        for i in range(degree):
            sums[2 * i] = squares[i]
        for at, (i, j) in enumerate(combinations(range(degree), 2), degree):
            cross = self.apply(base, "sub", products[at], squares[i])
            cross = self.apply(base, "sub", cross, squares[j])
            before = sums[i + j]
            sums[i + j] = cross if before is None else self.apply(base, "add", before, cross)
        parts: list[ElementData] = [each for each in sums if each is not None]
        coefficients = parts[:degree]
        for high, terms in zip(parts[degree:], field.high_terms, strict=True):
            for k, factor in terms:
                multiple = self._multiply_by_constant(base, high, factor)
                coefficients[k] = self.apply(base, "add", coefficients[k], multiple)
        return self.join_coefficients(field, coefficients)

    def _add_pairs(self, field: Extension, x: ElementData) -> ElementData:
        """The coefficients, then the sums of two of them, along a new first axis."""
        parts = [get_coefficient(field, x, i) for i in range(field.degree)]
        pairs = [self.apply(field.base, "add", a, b) for a, b in combinations(parts, 2)]
        return self._stack([*parts, *pairs], 0)

    def _multiply_by_constant(
        self, field: PrimeOrExtension, x: ElementData, value: Scalar
    ) -> ElementData:
        """Elements times a constant that is not 0."""
        small = _find_small(field, value) if isinstance(field, Prime) else 0
        if not small:
            return self.multiply(field, x, make_element(field, value, self.device))
        multiple = x
        for bit in f"{abs(small):b}"[1:]:
            multiple = self.apply(field, "double", multiple)
            if bit == "1":
                multiple = self.apply(field, "add", multiple, x)
        return self.apply(field, "neg", multiple) if small < 0 else multiple

    def scale(self, field: Extension, x: ElementData, factors: ElementData) -> ElementData:
        """Elements times elements of the base: the coefficients are one more axis of the base's
        elements."""
        own = get_shape(field.base, factors)
        return self.multiply(field.base, x, elementwise.reshape(field.base, factors, (*own, 1)))

    def power(self, field: Extension, x: ElementData, exponent: int) -> ElementData:
        """x^exponent, exponent > 0: a square for each bit, and a product for each odd digit."""
        digits = _split_exponent(exponent)
        odd = {1: x}
        if max(digit for digit, _ in digits) > 1:
            square = self.multiply(field, x, x)
            for digit in range(3, max(digit for digit, _ in digits) + 1, 2):
                odd[digit] = self.multiply(field, odd[digit - 2], square)
        (first, zeros), *rest = digits
        result = odd[first]
        spare: list[DeviceArray] = []

        def replace(other: ElementData) -> None:
            nonlocal result
            before = result
            out = spare.pop() if spare else None
            result = self.multiply(field, before, other, out)
            if isinstance(before, DeviceArray) and all(before is not each for each in odd.values()):
                spare.append(before)
            if len(self._steps) > MAX_STEPS:
                self.submit()

        for _ in range(zeros):
            replace(result)
        for digit, squares in rest:
            replace(odd[digit])
            for _ in range(squares):
                replace(result)
        return result.copy() if result is x else result

    # --- conjugates ---

    def apply_frobenius(self, field: Extension, x: ElementData, times: int) -> ElementData:
        """x^(p^times)."""
        if not times:
            return x
        if isinstance(field.base, Extension):
            x = self.apply_frobenius(field.base, x, times % field.base.total_degree)
        return self._apply_rows(field, x, extension.find_frobenius_rows(field, times))

    def _conjugate(self, field: Extension, x: ElementData, times: int) -> ElementData:
        """x^(q^times), q the number of elements of the base."""
        if field.degree == 2 and field.nonresidue is not None and self.device is None:
            first, second = (get_coefficient(field, x, i) for i in (0, 1))
            # On the host a product is slower than this.
            return self.join_coefficients(field, [first, self.apply(field.base, "neg", second)])
        return self._apply_rows(field, x, extension.find_conjugate_rows(field, times))

    def _apply_rows(
        self, field: Extension, x: ElementData, rows: tuple[Scalar, ...]
    ) -> ElementData:
        """c0 row 0 + c1 row 1 + ..., the rows being elements."""
        degree, base = field.degree, field.base
        targets = [[k for k in range(degree) if not extension.is_zero(row[k])] for row in rows]
        if any(len(each) > 1 for each in targets):
            return self._apply_matrix(field, x, rows)
        order = [target for (target,) in targets]  # a product for each coefficient, and its place
        factors = tuple(row[target] for row, target in zip(rows, order, strict=True))
        one = extension.make_one(base)
        if any(factor != one for factor in factors):
            x = self.multiply(base, x, _make_constants(base, factors, self.device))
        if order == sorted(order):
            return x
        sources = [order.index(i) for i in range(degree)]
        return self.join_coefficients(field, [get_coefficient(field, x, i) for i in sources])

    def _apply_matrix(
        self, field: Extension, x: ElementData, rows: tuple[Scalar, ...]
    ) -> ElementData:
        degree, base = field.degree, field.base
        if isinstance(x, DeviceArray) and isinstance(base, Prime):
            if not x.size:
                return x.copy()
            matrix = _make_constants(field, rows, self.device)
            assert isinstance(matrix, DeviceArray) and self.device is not None
            result = self.device.empty(x.shape, x.dtype)
            kernel = scans.make_scan_kernel(self.device, base, "matrix_products")
            count = count_elements(base, x)
            self._steps.append(
                Dispatch(
                    kernel,
                    (x, matrix, result),
                    count,
                    (count // degree, degree, degree, 1),
                    grid_stride=True,
                    elementwise=degree,
                )
            )
            return result
        parts = [get_coefficient(field, x, i) for i in range(degree)]
        coefficients: list[ElementData] = []
        for k in range(degree):
            terms = [
                self._multiply_by_constant(base, part, row[k])
                for part, row in zip(parts, rows, strict=True)
                if not extension.is_zero(row[k])
            ]
            coefficients.append(functools.reduce(functools.partial(self.apply, base, "add"), terms))
        return self.join_coefficients(field, coefficients)

    def compute_norms(self, field: Extension, x: ElementData, others: ElementData) -> ElementData:
        """The product of x and its other conjugates, which is an element of the base."""
        if field.degree == 2 and field.nonresidue is not None:
            squares = self.multiply(field.base, x, x)  # (a + b u) (a - b u) = a^2 - nonresidue b^2
            first, second = (get_coefficient(field, squares, i) for i in (0, 1))
            high = self._multiply_by_constant(field.base, second, field.nonresidue)
            return self.apply(field.base, "sub", first, high)
        return get_coefficient(field, self.multiply(field, x, others), 0)

    def multiply_conjugates(self, field: Extension, x: ElementData) -> ElementData:
        """The product of all conjugates but x itself."""
        if field.degree == 2:
            return self._conjugate(field, x, 1)
        if field.degree == 3:
            first, second = (self._conjugate(field, x, times) for times in (1, 2))
            return self.multiply(field, first, second)
        half = self._conjugate(field, x, 2)
        pair = self.multiply(field, x, half)
        return self.multiply(field, half, self._conjugate(field, pair, 1))

    def invert(self, field: PrimeOrExtension, x: ElementData) -> ElementData:
        """1 / x, and 0 for 0."""
        if isinstance(field, Prime):
            return scans.invert(field, x, steps=self._steps)
        others = self.multiply_conjugates(field, x)
        norms = self.compute_norms(field, x, others)
        return self.scale(field, others, self.invert(field.base, norms))


def _find_small(prime: Prime, value: int) -> int:
    """The value as an integer of at most `MAX_SMALL`, negative or not; 0 if there is none."""
    if value <= MAX_SMALL:
        return value
    return value - prime.modulus if prime.modulus - value <= MAX_SMALL else 0


@functools.lru_cache(maxsize=256)
def _encode_reduction(field: Extension, prime: Prime) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What replaces u^degree, u^(degree + 1), ... in a product: all coefficients, and these as
    signed bytes in three words, `LARGE` for one that is not small."""
    values = [0] * (field.degree - 1) * field.degree
    codes = bytearray(12)
    for row, terms in enumerate(field.high_terms):
        for k, factor in terms:
            values[row * field.degree + k] = factor
            codes[row * field.degree + k] = (_find_small(prime, factor) or -LARGE) & 0xFF
    return tuple(values), tuple(np.frombuffer(codes, "<u4").tolist())


def _split_exponent(exponent: int) -> list[tuple[int, int]]:
    """The exponent as odd digits below 2^WINDOW_BITS, the first one first, with the number of
    squares after each: ((d0 * 2^z0 + d1) * 2^z1 + ...) and so on."""
    found: list[tuple[int, int]] = []
    bits = f"{exponent:b}"
    at = 0
    while at < len(bits):
        if bits[at] == "0":
            digit, squares = found[-1]
            found[-1] = digit, squares + 1
            at += 1
            continue
        window = bits[at : at + WINDOW_BITS].rstrip("0")
        if found:
            digit, squares = found[-1]
            found[-1] = digit, squares + len(window)
        found.append((int(window, 2), 0))
        at += len(window)
    return found
