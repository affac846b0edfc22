"""Field: arithmetic modulo a prime, on arrays wherever they live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gpu_executor.errors import ArgumentTypeError, ElementRangeError
from gpu_executor.fields import elementwise, polynomials, scans, transforms
from gpu_executor.fields.array import FieldArray, Form, Words
from gpu_executor.fields.operands import Operand, check_one_place, own, ready, whole
from gpu_executor.ops.transform import Order, TransformOptions
from gpu_executor.primes import NAMED, Prime, encoding, words


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
        modulus = whole(modulus, "a modulus")
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
        canonical = own(self, array).in_form("canonical")
        found: npt.NDArray[np.object_] = encoding.words_to_ints(self.prime, canonical.numpy())
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
        found = own(self, array).in_form("canonical").numpy()
        return encoding.words_to_bytes(self.prime, found, byteorder=byteorder, width=width)

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
        """a + b."""
        return elementwise.computed(self, "add", a, b, commutes=True)

    def sub(self, a: Operand, b: Operand) -> FieldArray:
        """a - b."""
        return elementwise.computed(self, "sub", a, b)

    def mul(self, a: Operand, b: Operand) -> FieldArray:
        """a * b."""
        return elementwise.computed(self, "mul", a, b, commutes=True)

    def neg(self, a: FieldArray) -> FieldArray:
        """-a."""
        return elementwise.computed(self, "neg", a)

    def double(self, a: FieldArray) -> FieldArray:
        """a + a."""
        return elementwise.computed(self, "double", a)

    def square(self, a: FieldArray) -> FieldArray:
        """a * a."""
        return elementwise.computed(self, "square", a)

    def fma(self, a: Operand, b: Operand, c: Operand) -> FieldArray:
        """a * b + c."""
        return elementwise.computed(self, "fma", a, b, c)

    def equal(self, a: Operand, b: Operand) -> npt.NDArray[np.bool_]:
        """Where they are equal, on the host."""
        return elementwise.equal(self, a, b)

    def select(self, condition: npt.ArrayLike, a: Operand, b: Operand) -> FieldArray:
        """a where the condition holds, else b; the condition is a host's array of a's shape."""
        return elementwise.selected(self, condition, a, b)

    def power(self, a: FieldArray, exponent: int) -> FieldArray:
        """Every element to the same power; below 0 of the inverse, where 0 stays 0."""
        return elementwise.power(self, a, exponent)

    def inverse(self, a: FieldArray, *, zero: Literal["zero", "error"] = "zero") -> FieldArray:
        """1 / a; of 0 it is 0, or with `zero="error"` an error that names the first."""
        return scans.inverses(self, a, zero)

    # --- along the last axis ---

    def sum(self, a: FieldArray, *, axis: Literal[-1] | None = None) -> FieldArray:
        """The sum of all elements, or of each row."""
        return scans.sums(self, a, axis)

    def dot(self, a: FieldArray, b: FieldArray, *, axis: Literal[-1] | None = None) -> FieldArray:
        """The sum of the products of elements, of all of them or in each row."""
        return self.sum(self.mul(a, b), axis=axis)

    def prefix_product(self, a: FieldArray) -> FieldArray:
        """Every element times all before it in its row."""
        return scans.running_products(self, a)

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
        return transforms.transformed(self, a, TransformOptions(False, order_in, order_out, coset))

    def intt(
        self,
        a: FieldArray,
        *,
        coset: int | None = None,
        order_in: Order = "natural",
        order_out: Order = "natural",
    ) -> FieldArray:
        """The coefficients again, of what `ntt` gave."""
        return transforms.transformed(self, a, TransformOptions(True, order_in, order_out, coset))

    # --- polynomials, their coefficients along the last axis, the constant first ---

    def poly_mul(self, a: FieldArray, b: FieldArray) -> FieldArray:
        """The product of polynomials."""
        return polynomials.multiplied(self, own(self, a), own(self, b))

    def poly_eval(self, a: FieldArray, points: FieldArray) -> FieldArray:
        """One polynomial at many points; at all roots of unity `ntt` is faster."""
        coefficients, at = ready(self, a), ready(self, points)
        check_one_place([coefficients, at])
        return polynomials.evaluated(self, coefficients, at)

    def poly_divide_vanishing(self, a: FieldArray, n: int) -> tuple[FieldArray, FieldArray]:
        """Quotient and remainder by X^n - 1."""
        coefficients = ready(self, a)
        return polynomials.divided_by_vanishing(self, coefficients, whole(n, "n of X^n - 1"))
