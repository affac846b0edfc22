"""Division of polynomials with remainder, and inverses of power series, by Newton's iteration.

The algorithms are written with operations of the field on whole arrays, so they run where the
arrays are. Products are transforms where the field has roots of unity for them, and direct
otherwise (`polynomials.multiply_in_any_field`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_executor.errors import ArgumentShapeError, ElementDivisionError
from gpu_executor.ops import polynomials


def divide(field: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """Quotient and remainder of the rows of `a` by one polynomial, arrays of `field` in its form.

    The reversed quotient is the power series of the reversed dividend times the inverse of that of
    the reversed divisor. The remainder is found modulo X^degree.
    """
    if not a.ndim:
        raise ArgumentShapeError(
            f"{field.name}: poly_divmod takes the coefficients of a along its last axis, and a has "
            "no axes"
        )
    if b.ndim != 1:
        raise ArgumentShapeError(
            f"{field.name}: poly_divmod divides by one polynomial, the coefficients of b along one "
            f"axis; the shape of b is {b.shape}"
        )
    degree = _find_degree(field, b)
    length = a.shape[-1]
    terms = max(length - degree, 0)
    if not terms or not a.size:
        rest = polynomials.resize(field.prime, a.data, degree)
        none = polynomials.resize(field.prime, a.data, terms)
        return field._wrap(none).copy(), field._wrap(rest).copy()
    inverse = invert_series(field, b[: degree + 1][::-1], terms)
    quotient = multiply(field, a[..., degree:][..., ::-1], inverse)[..., :terms][..., ::-1]
    if not degree:
        return quotient.copy(), a[..., :0].copy()
    product = multiply(field, quotient[..., :degree], b[:degree])
    low = field._wrap(polynomials.resize(field.prime, product.data, degree))
    return quotient.copy(), a[..., :degree] - low


def _find_degree(field: Any, b: Any) -> int:
    """The index of the last coefficient that is not 0."""
    found = np.flatnonzero(~field.equal(b, 0))
    if not found.size:
        raise ElementDivisionError(
            f"{field.name}: poly_divmod divides by the polynomial 0: b has no coefficient other "
            "than 0"
        )
    return int(found[-1])


def invert_series(field: Any, f: Any, terms: int) -> Any:
    """The first terms of the power series 1 / f; the constant term of f is not 0.

    Each step doubles the number k of terms g that are right: f g is 1 + X^k e modulo X^(2k), and
    the next k terms are those of -e g.
    """
    inverse, count = field.inverse(f[:1]), 1
    while count < terms:
        more = field._wrap(polynomials.resize(field.prime, f.data, 2 * count))
        error = multiply_middle(field, more, inverse, count)
        correction = multiply(field, error, inverse)[:count]
        inverse = field.concatenate([inverse, -correction])
        count *= 2
    return inverse[:terms]


def multiply(field: Any, a: Any, b: Any) -> Any:
    """The product of polynomials, in any field."""
    return field._wrap(polynomials.multiply_in_any_field(field.prime, a.data, b.data))


def multiply_middle(field: Any, a: Any, b: Any, half: int) -> Any:
    """The coefficients half .. 2 half - 1 of a product, in any field."""
    return field._wrap(polynomials.multiply_middle(field.prime, a.data, b.data, half))
