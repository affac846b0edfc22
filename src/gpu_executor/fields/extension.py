"""`ExtensionField`, an extension of a prime field or of another extension, and `ExtensionArray`, an
array of its elements.

An element is c0 + c1 u + ... with coefficients in the base, u the root of an irreducible
polynomial: u^degree - nonresidue, or any other. In Python an element is the tuple of its
coefficients: integers, or tuples themselves in a tower of extensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from gpu_executor.calls.arguments import is_integer, parse_shape
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError, ElementRangeError
from gpu_executor.fields.field import (
    BLS12_377_FQ,
    BLS12_381_FQ,
    BN254_FQ,
    GOLDILOCKS,
    Field,
    shorten,
)
from gpu_executor.fields.finite_field import (
    FiniteField,
    FiniteFieldArray,
    Operand,
    as_int,
)
from gpu_executor.fields.folding import fold_values
from gpu_executor.fields.layout_array import check_one_place
from gpu_executor.kernel import Kernel
from gpu_executor.ops import elementwise, extensions
from gpu_executor.ops.elementwise import ElementData
from gpu_executor.ops.transforms import Order
from gpu_executor.primes import Extension, Prime, PrimeOrExtension, encoding, extension, words
from gpu_executor.primes.extension import Scalar

if TYPE_CHECKING:
    from gpu_executor.backend import Backend

VARIABLES = "uvwxyz"
"""What the names of fields without a name call the root of each extension of a tower."""


class ExtensionArray(FiniteFieldArray):
    """Elements of an extension field, on the host or on a device; `ExtensionField` makes them.

    `numpy()` returns canonical words, shape (..., degree, words of a coefficient), `words()` the
    words as stored; `ints()` and `tolist()` return tuples of Python integers. Arrays of the base
    field and integers mix with these elements.
    """

    __slots__ = ()

    field: ExtensionField

    def convert_for(self, kernel: Kernel) -> Self:
        """Raises: kernels take the coefficients, which are arrays of the base field."""
        raise ArgumentTypeError(
            f"{kernel.name} does not take elements of {self.layout.name}; pass the coefficients, "
            "array.coefficients, or the words, array.in_form(form).data"
        )

    def ints(self) -> npt.NDArray[np.object_]:
        """The elements as tuples of Python integers, in a NumPy array of objects."""
        canonical = self.numpy()
        layout = self.field.layout
        integers, step = words.to_ints(layout.prime, canonical), layout.total_degree
        found = np.empty(self.size, np.object_)
        for index in range(self.size):
            part = integers[index * step : (index + 1) * step]
            found[index] = extension.unflatten(layout, part)
        return found.reshape(self.shape)

    @property
    def coefficients(self) -> tuple[Any, ...]:
        """Views of the coefficients c0, c1, ...: arrays of the base field."""
        field = self.field
        return tuple(
            field.base._wrap(extensions.get_coefficient(field.layout, self.data, i), self.form)
            for i in range(field.degree)
        )

    def conjugate(self) -> ExtensionArray:
        """The other conjugate, for degree 2: c0 - c1 u if u^2 is an element of the base."""
        return self.field.conjugate(self)

    def frobenius(self, times: int = 1) -> ExtensionArray:
        """Every element to the power p^times.

        Args:
            times (int): How often the map x -> x^p is applied.
        """
        return self.field.frobenius(self, times)


class ExtensionField(FiniteField[ExtensionArray]):
    """The elements c0 + c1 u + ... with coefficients in `base`, u a root of `polynomial`.

    A tuple of coefficients stands for an element, and so does an integer or an element of the base.
    """

    array_type, array_in_words = ExtensionArray, "an ExtensionArray"
    layout: Extension

    def __init__(
        self,
        base: Field | ExtensionField,
        nonresidue: Any = None,
        degree: int | None = None,
        *,
        polynomial: Sequence[Any] | None = None,
        name: str | None = None,
    ) -> None:
        """An extension of a field by a root u of an irreducible polynomial.

        The polynomial is u^degree - nonresidue, or what `polynomial` says. That it is irreducible
        over the base is checked.

        Args:
            base (Field or ExtensionField): The field of the coefficients.
            nonresidue (int or tuple): u^degree, an element of the base; None with `polynomial`.
            degree (int): The degree over the base, 2 to 4; None for 2, or for that of `polynomial`.
            polynomial (sequence): The coefficients of the polynomial that u is a root of, elements
                of the base, the constant term first and 1 last: (-1, -1, 0, 1) for u^3 = u + 1.
            name (str): The name of the field in messages; None for a description.
        """
        if not isinstance(base, Field | ExtensionField):
            raise ArgumentTypeError(
                f"the base of an extension is a Field or an ExtensionField, not "
                f"{type(base).__name__}"
            )
        self.base = base
        if polynomial is None:
            if nonresidue is None:
                raise ArgumentTypeError(
                    f"an extension of {base.name} takes a nonresidue, u^degree, or polynomial="
                )
            number = 2 if degree is None else as_int(degree, "the degree")
            element = base._parse_scalar(nonresidue)
            described = name or _describe(base, (element, *[0] * (number - 1)))
            self.layout = Extension.binomial(described, base.layout, element, number)
        else:
            if nonresidue is not None or degree is not None:
                raise ArgumentTypeError(
                    f"an extension of {base.name} takes polynomial= or a nonresidue and a degree, "
                    "not both"
                )
            reduction = _parse_polynomial(base, polynomial)
            described = name or _describe(base, reduction)
            self.layout = Extension(described, base.layout, reduction)
        self.prime = self.layout.prime

    @property
    def degree(self) -> int:
        """The degree over the base: coefficients of an element."""
        return self.layout.degree

    @property
    def nonresidue(self) -> Scalar | None:
        """u^degree if it is an element of the base, else None."""
        return self.layout.nonresidue

    @property
    def polynomial(self) -> tuple[Scalar, ...]:
        """The irreducible polynomial that u is a root of: elements of the base, the constant term
        first, 1 last."""
        base = self.base.layout
        lower = (extension.negate(base, each) for each in self.layout.reduction)
        return (*lower, extension.make_one(base))

    @property
    def order(self) -> int:
        """The number of elements."""
        return self.layout.order

    @property
    def prime_field(self) -> Field:
        """The prime field at the bottom of the tower."""
        return self.base if isinstance(self.base, Field) else self.base.prime_field

    def contains(self, other: FiniteField[Any]) -> bool:
        """Whether the field is an extension of another field, over one or more steps.

        Args:
            other (FiniteField): The other field.
        """
        return self.base == other or self.base.contains(other)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExtensionField):
            return False
        return self is other or (self.base, self.layout.reduction) == (
            other.base,
            other.layout.reduction,
        )

    def __hash__(self) -> int:
        return hash((self.base, self.layout.reduction))

    def __repr__(self) -> str:
        return f"<ExtensionField {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_field, (self.base, self.polynomial, self.name)

    # --- conversion ---

    def encode(self, values: Any, *, reduce: bool = False) -> ExtensionArray:
        """Elements on the host. A tuple of coefficients is one element, and so is an integer.

        Args:
            values (tuple or int or list or numpy.ndarray): An element, or nested lists of elements;
                an array of integers has the coefficients along its last axis, in a tower along its
                last axes.
            reduce (bool): Whether integers are taken modulo p; otherwise those outside of 0 .. p-1
                raise `ElementRangeError`.
        """
        integers, shape = self._flatten_values(values)
        layout = self.layout
        try:
            found = encoding.ints_to_words(layout.prime, integers, reduce=reduce)
        except ElementRangeError as error:
            index = error.index // layout.total_degree
            raise ElementRangeError(f"{self.name} from integers", 0, index) from None
        return self._wrap(found.reshape(*shape, *layout.element_shape), "canonical")

    def _flatten_values(self, values: Any) -> tuple[list[Any], tuple[int, ...]]:
        """The integers of all elements, and the shape of the elements."""
        if isinstance(values, np.ndarray):
            if values.dtype == object and any(isinstance(each, tuple) for each in values.flat):
                return self._flatten_values(values.tolist())
            axes, found = self.layout.degrees, values.shape
            if values.dtype.kind not in "iuO":
                raise ArgumentTypeError(f"{self.name}: expected integers, found {values.dtype}")
            if found[max(len(found) - len(axes), 0) :] != axes:
                raise ArgumentShapeError(
                    f"{self.name}: the last axes hold the coefficients of an element, {axes}, but "
                    f"the shape is {found}"
                )
            return values.ravel().tolist(), found[: len(found) - len(axes)]
        if isinstance(values, tuple) or not isinstance(values, Iterable):
            return self._flatten_element(self.layout, values), ()
        if isinstance(values, str | bytes | bytearray | memoryview | FiniteFieldArray):
            raise ArgumentTypeError(
                f"{self.name}: expected tuples of integers, found {type(values).__name__}"
            )
        parts = [self._flatten_values(each) for each in values]
        shapes = {shape for _, shape in parts}
        if len(shapes) > 1:
            raise ArgumentShapeError(
                f"{self.name}: the nested rows differ in shape; make their lengths equal (a tuple "
                "is one element, a list is a row)"
            )
        integers = [integer for part, _ in parts for integer in part]
        return integers, (len(parts), *(shapes.pop() if shapes else ()))

    def _flatten_element(self, layout: PrimeOrExtension, value: Any) -> list[Any]:
        """The integers of one element, given as such or as an element of a base."""
        if isinstance(layout, Prime):
            if not is_integer(value):
                raise ArgumentTypeError(
                    f"{self.name}: {value!r} is neither an integer nor a tuple of coefficients"
                )
            return [value]
        levels = extension.count_levels(value)
        if levels < len(layout.degrees):
            below = self._flatten_element(layout.base, value)
            return [*below, *[0] * (layout.total_degree - len(below))]
        if levels > len(layout.degrees) or len(value) != layout.degree:
            raise ArgumentShapeError(
                f"{self.name}: {value!r} does not have the {layout.degree} coefficients of an "
                f"element of {layout.name}"
            )
        return [each for part in value for each in self._flatten_element(layout.base, part)]

    def from_coefficients(self, *coefficients: Operand) -> ExtensionArray:
        """Elements from c0, c1, ...: arrays of the base field, and integers for equal ones.

        Args:
            coefficients (array or int): c0, c1, ...: arrays of the base field, and integers for
                equal ones.
        """
        if len(coefficients) != self.degree:
            raise ArgumentTypeError(
                f"{self.name}: an element has {self.degree} coefficients, not {len(coefficients)}"
            )
        return self._wrap(extensions.join(self.layout, self.base._operands(coefficients)))

    def random(
        self,
        shape: int | Sequence[int],
        seed: int | np.random.Generator | None = None,
        *,
        device: Backend | None = None,
    ) -> ExtensionArray:
        """Uniformly distributed elements; not for secrets. A seed gives the same ones everywhere.

        Args:
            shape (int or tuple): The lengths of the axes.
            seed (int or numpy.random.Generator): What determines the elements; None for new ones in
                every call.
            device (Backend): The executor or backend on whose device the elements are; None for
                the host.
        """
        lengths = parse_shape(shape, self.layout.element_bytes)
        drawn = self.prime_field.random((*lengths, *self.layout.degrees), seed, device=device)
        return self._wrap(drawn.data, drawn.form)

    def _check_words(self, data: ElementData) -> None:
        axes = self.layout.element_shape
        if data.shape[max(data.ndim - len(axes), 0) :] != axes:
            raise ArgumentShapeError(
                f"{self.name}: the last axes hold the words of an element, {axes}, but the shape "
                f"is {data.shape}"
            )

    # --- operations ---

    def mul(self, a: Operand, b: Operand) -> ExtensionArray:
        """a * b; a product with elements of the base, or with an integer, is one for each
        coefficient.

        Args:
            a (array or int): A factor: an array, or what stands for one element.
            b (array or int): The other factor.
        """
        for x, y in ((a, b), (b, a)):
            if isinstance(x, ExtensionArray) and (x.field is self or x.field == self):
                found = self._scale(x, y)
                if found is not None:
                    return found
        return super().mul(a, b)

    def _scale(self, a: ExtensionArray, factor: Operand) -> ExtensionArray | None:
        """a times an element of the prime field, or elements of the base; None for other factors,
        and where host and device are mixed."""
        if not isinstance(factor, FiniteFieldArray):
            first, *rest = extension.flatten(self._parse_scalar(factor))
            if any(rest):
                return None
            device = a.device if a.on_device else None
            element = elementwise.make_element(self.prime, first, device)
            return self._wrap(elementwise.compute(self.prime, "mul", [self._load(a), element]))
        if not self.contains(factor.field):
            return None
        check_one_place([a, factor])
        factors = self.base._load(factor)  # type: ignore[arg-type]
        return self._wrap(extensions.multiply_by_base(self.layout, self._load(a), factors))

    def power(self, a: ExtensionArray, exponent: int) -> ExtensionArray:
        """Every element to one power; a negative exponent inverts, and 0 stays 0.

        Args:
            a (ExtensionArray): The elements.
            exponent (int): The power, of any sign.
        """
        number = as_int(exponent, "the exponent")
        return self._wrap(extensions.power(self.layout, self._load(a), number))

    def conjugate(self, a: ExtensionArray) -> ExtensionArray:
        """The other conjugate, for degree 2: c0 - c1 u if u^2 is an element of the base.

        Args:
            a (ExtensionArray): The elements.
        """
        if self.degree != 2:
            raise ArgumentTypeError(
                f"{self.name}: an element has {self.degree} conjugates, and conjugate(array) is "
                "for degree 2; take frobenius(array, times)"
            )
        return self.frobenius(a, self.layout.total_degree // 2)

    def frobenius(self, a: ExtensionArray, times: int = 1) -> ExtensionArray:
        """Every element to the power p^times: a linear map, of one product for each coefficient if
        u^degree is an element of the base.

        Args:
            a (ExtensionArray): The elements.
            times (int): How often the map x -> x^p is applied.
        """
        number = as_int(times, "times")
        return self._wrap(extensions.apply_frobenius(self.layout, self._load(a), number))

    def norm(self, a: ExtensionArray) -> Any:
        """The product of the conjugates over the base: an array of the base field.

        Args:
            a (ExtensionArray): The elements.
        """
        return self.base._wrap(extensions.compute_norms(self.layout, self._load(a)))

    def legendre(self, a: ExtensionArray) -> npt.NDArray[np.int8]:
        """1 for squares, -1 for other elements, 0 for 0: an array on the host.

        An element is a square if and only if its norm is a square in the base.

        Args:
            a (ExtensionArray): The elements.
        """
        return self.base.legendre(self.norm(a))

    def _find_roots(self, a: ExtensionArray) -> ExtensionArray:
        """Roots in degree 2 with u^2 in the base are computed with roots in the base, and others
        as in every field.

        (x + y u)^2 = c0 + c1 u has x^2 = (c0 + r) / 2 for one of the roots r of the norm, and
        y = c1 / (2 x). If x = 0, then y^2 = c0 / nonresidue.
        """
        if self.degree != 2 or self.nonresidue is None:
            return super()._find_roots(a)
        base: FiniteField[Any] = self.base
        c0, c1 = a.in_form(self.form).coefficients
        root = base.sqrt(self.norm(a), nonsquare="zero")
        half = base.div(base.add(c0, root), 2)
        half = base.where(base.legendre(half) == 1, half, base.sub(half, root))
        x = base.sqrt(half, nonsquare="zero")
        y = base.mul(c1, base.inverse(base.double(x)))
        pure = base.equal(x, 0)
        if pure.any():
            others = base.sqrt(base.div(c0, self.nonresidue), nonsquare="zero")
            y = base.where(pure, others, y)
        return self.from_coefficients(x, y)

    def fold(
        self,
        values: FiniteFieldArray,
        alpha: Any,
        arity: int = 2,
        *,
        order: Order = "natural",
        coset: int | None = None,
    ) -> ExtensionArray:
        """One step of folding in FRI, as `Field.fold`: the domain is in the prime field.

        Args:
            values (ExtensionArray or FieldArray): The values at the powers of a root of unity of
                the prime field, or at `coset` times those, along the last axis; elements of this
                field or of its base.
            alpha (tuple or int or array): The factor: an element of this field, or an array without
                axes.
            arity (int): How many values become one: 2, 4, 8 or 16.
            order (str): The order of the values and of the results, "natural" or "reversed": by
                bit-reversed index.
            coset (int): The factor g of the points g w^i; None for 1. The results are at
                g^arity w^(i arity).
        """
        folded: ExtensionArray = fold_values(
            self, self.prime_field, values, alpha, arity, order, coset
        )
        return folded

    # --- words and single elements ---

    def _compute_words(
        self, operation: str, operands: list[ElementData], commutes: bool
    ) -> ElementData:
        return extensions.compute(self.layout, operation, operands, commutes=commutes)

    def _compare_words(self, a: ElementData, b: ElementData) -> npt.NDArray[np.bool_]:
        return extensions.compare(self.layout, a, b)

    def _select_words(
        self, condition: npt.NDArray[np.bool_], a: ElementData, b: ElementData
    ) -> ElementData:
        return extensions.select(self.layout, condition, a, b)

    def _invert_words(self, x: ElementData) -> ElementData:
        return extensions.invert(self.layout, x)

    def _sum_rows(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return extensions.sum_rows(self.layout, x, rows, columns)

    def _multiply_rows(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return extensions.multiply_rows(self.layout, x, rows, columns)

    def _add_prefixes(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return extensions.add_prefixes(self.layout, x, rows, columns)

    def _multiply_prefixes(self, x: ElementData, rows: int, columns: int) -> ElementData:
        return extensions.multiply_prefixes(self.layout, x, rows, columns)

    def _multiply_matrices(self, a: ElementData, b: ElementData) -> ElementData:
        return extensions.multiply_matrices(self.layout, a, b)

    def _make_element(self, value: Scalar, device: ArrayDevice | None) -> ElementData:
        return extensions.make_element(self.layout, value, device)

    def _parse_scalar(self, operand: Operand) -> Scalar:
        """A tuple of coefficients, or an integer, as an element."""
        if isinstance(operand, bool) or not isinstance(operand, int | np.integer | tuple):
            raise ArgumentTypeError(
                f"{self.name}: an operand must be an ExtensionArray, a tuple of coefficients or an "
                f"integer, not {type(operand).__name__}; encode(values) makes an ExtensionArray"
            )
        integers = self._flatten_element(self.layout, operand)
        return extension.unflatten(self.layout, [int(each) % self.modulus for each in integers])

    def _invert_scalar(self, value: Scalar) -> Scalar:
        return value if extension.is_zero(value) else extension.inverse(self.layout, value)

    def _check(self, array: ExtensionArray) -> ExtensionArray:
        """The array, if it is one of this field; an array of a base becomes one."""
        if isinstance(array, FiniteFieldArray) and array.field is not self:
            given: Any = array
            if self.contains(given.field):
                words_of_base = self.base._load(given)
                return self._wrap(extensions.embed(self.layout, words_of_base))
        return super()._check(array)

    def _describe_difference(self, other: FiniteField[Any]) -> tuple[str, str]:
        if other.name != self.name or not isinstance(other, ExtensionField):
            return other.name, self.name
        given, own = (_describe(each.base, each.layout.reduction) for each in (other, self))
        return given, own


def _parse_polynomial(base: Field | ExtensionField, polynomial: Any) -> tuple[Scalar, ...]:
    """u^degree, from the coefficients of a polynomial that is 0 at u."""
    if not isinstance(polynomial, Sequence | np.ndarray) or isinstance(polynomial, str | bytes):
        raise ArgumentTypeError(
            f"an extension of {base.name}: polynomial= takes the coefficients, the constant term "
            f"first, not {type(polynomial).__name__}"
        )
    *lower, last = (base._parse_scalar(each) for each in [0, *polynomial][1:] or [0])
    if last != extension.make_one(base.layout):
        raise ArgumentTypeError(
            f"an extension of {base.name}: the last coefficient of polynomial= is {last}; it must "
            "be 1, that of the highest power"
        )
    return tuple(extension.negate(base.layout, each) for each in lower)


def _describe(base: Field | ExtensionField, reduction: Sequence[Scalar]) -> str:
    """The name of a field that the caller gave no name, such as bls12_381_fq[u]/(u^2 + 1)."""
    level = len(base.layout.degrees) if isinstance(base, ExtensionField) else 0
    variable = VARIABLES[level % len(VARIABLES)]
    text = f"{variable}^{len(reduction)}"
    for power in reversed(range(len(reduction))):
        value = reduction[power]
        if extension.is_zero(value):
            continue
        sign, shown = "-", str(value)
        if isinstance(value, int):
            is_negative = value > base.modulus // 2
            sign = "+" if is_negative else "-"
            shown = shorten(base.modulus - value if is_negative else value)
        name = "" if power == 0 else variable if power == 1 else f"{variable}^{power}"
        text += f" {sign} {name if name and shown == '1' else f'{shown} {name}'.rstrip()}"
    return f"{base.name}[{variable}]/({text})"


def _restore_field(
    base: Field | ExtensionField, polynomial: tuple[Scalar, ...], name: str
) -> ExtensionField:
    """A field that was pickled; a named one is the field of this module."""
    known = NAMED_EXTENSIONS.get(name)
    if known is not None and (known.base, known.polynomial) == (base, polynomial):
        return known
    return ExtensionField(base, polynomial=polynomial, name=name)


BLS12_381_FQ2 = ExtensionField(BLS12_381_FQ, -1, name="bls12_381_fq2")
"""u^2 = -1: the coordinates of points of BLS12-381 G2."""
BN254_FQ2 = ExtensionField(BN254_FQ, -1, name="bn254_fq2")
"""u^2 = -1: the coordinates of points of BN254 G2."""
BLS12_377_FQ2 = ExtensionField(BLS12_377_FQ, -5, name="bls12_377_fq2")
"""u^2 = -5: the coordinates of points of BLS12-377 G2."""
GOLDILOCKS2 = ExtensionField(GOLDILOCKS, 7, name="goldilocks2")
"""u^2 = 7, as in Plonky2 and Plonky3."""
GOLDILOCKS3 = ExtensionField(GOLDILOCKS, polynomial=(-1, -1, 0, 1), name="goldilocks3")
"""u^3 = u + 1, as in Polygon's and Winterfell's provers."""

NAMED_EXTENSIONS = {
    field.name: field
    for field in (BLS12_381_FQ2, BN254_FQ2, BLS12_377_FQ2, GOLDILOCKS2, GOLDILOCKS3)
}
