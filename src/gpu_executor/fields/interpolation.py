"""Interpolation at arbitrary points, by a tree of subproducts.

The tree has the products of 1 - x_i X over blocks of 1, 2, 4, ... points, in a field's arrays: one
array for each level, whose rows are its nodes. With c_i = y_i / m'(x_i), m the product of all X -
x_i, the polynomial is the sum of c_i m / (X - x_i) (Lagrange). Its reversal is the sum of c_i times
the product of the other 1 - x_j X, which is added from the leaves to the root. The way from the
root to the leaves evaluates m' at all points: the transposed algorithm of Bostan, Lecerf and
Schost ("Tellegen's principle into practice", 2003), with one inverse of a power series, at the
root. n points take about 12 transforms of 2 n elements for each level. Points that fill the last
block are 0, for which 1 - x X is 1.
"""

from __future__ import annotations

import functools
from typing import Any

from gpu_executor.errors import ArgumentShapeError, ArgumentValueError
from gpu_executor.fields.polynomial_division import invert_series, multiply, multiply_middle
from gpu_executor.ops import elementwise, polynomials


def interpolate(field: Any, x: Any, y: Any) -> Any:
    """The coefficients of the polynomials with the values y, along its last axis, at the points x:
    arrays of `field` in its form."""
    if x.ndim != 1 or not x.size:
        raise ArgumentShapeError(
            f"{field.name}: interpolate takes at least one point, along one axis; the shape of x "
            f"is {x.shape}"
        )
    count = x.shape[0]
    if y.shape[-1:] != (count,):
        raise ArgumentShapeError(
            f"{field.name}: interpolate takes a value for each of the {count} points along the "
            f"last axis; the shape of y is {y.shape}"
        )
    tree = _make_tree(field, x)
    values = _evaluate_derivative(field, tree, count)
    error = functools.partial(_make_error, field.name)
    inverses = field.inverse(values)
    checked = elementwise.forbid_zeros(field.layout, values.data, inverses.data, error)
    sums = _resize(field, y * field._wrap(checked), 1 << len(tree) - 1)[..., None]
    for level in tree[:-1]:
        products = multiply(field, _pair(sums), _pair_others(level))
        sums = products[..., 0, :] + products[..., 1, :]
    return sums[..., 0, :count][..., ::-1].copy()


def _make_error(name: str, index: int) -> ArgumentValueError:
    return ArgumentValueError(
        f"{name}: interpolate: point {index} is repeated; all points must be different"
    )


def _make_tree(field: Any, x: Any) -> list[Any]:
    """The levels of the tree, from the leaves to the root: row j of a level of blocks of k points
    has the k + 1 coefficients of the product of block j."""
    padded = _resize(field, x, 1 << (x.shape[0] - 1).bit_length())
    level = field.stack([_make_ones(field, padded.shape[0], padded), -padded], axis=1)
    levels = [level]
    while level.shape[0] > 1:
        level = multiply(field, level[::2], level[1::2])
        levels.append(level)
    return levels


def _evaluate_derivative(field: Any, tree: list[Any], count: int) -> Any:
    """The values of m' at the points, of which there are `count`.

    The value of a polynomial at x_i is the inner product of its coefficients and of the power
    series 1 / (1 - x_i X). Of a block with the product p, row j has the inner products of the
    coefficients and of X^0 / p, X^1 / p, ... The product of a block's sibling times 1 / p of their
    parent is 1 / p of the block.
    """
    reversed_m = tree[-1][0]
    size = 1 << len(tree) - 1
    m = reversed_m[: count + 1][::-1]
    exponents = field.prefix_sum(_make_ones(field, count, m))
    derivative = _resize(field, m[1:] * exponents, size)
    inverse = invert_series(field, reversed_m, size)
    rows = multiply(field, derivative[::-1], inverse)[:size][::-1][None]
    for level in tree[-2::-1]:
        half = rows.shape[1] // 2
        factors = _pair_others(level)[..., ::-1]
        rows = multiply_middle(field, rows[:, None], factors, half).reshape(-1, half)
    return rows[:count, 0]


def _make_ones(field: Any, count: int, like: Any) -> Any:
    return field._wrap(elementwise.make_full(field.prime, (count,), 1, like.data))


def _pair(rows: Any) -> Any:
    """Rows as pairs of siblings: (..., n, k) as (..., n / 2, 2, k)."""
    *leading, count, length = rows.shape
    return rows.reshape(*leading, count // 2, 2, length)


def _pair_others(rows: Any) -> Any:
    """Pairs of rows, each in the place of its sibling."""
    return _pair(rows)[:, ::-1]


def _resize(field: Any, x: Any, length: int) -> Any:
    """Rows of another length: truncated, or padded with zeros."""
    return field._wrap(polynomials.resize(field.prime, x.data, length))
