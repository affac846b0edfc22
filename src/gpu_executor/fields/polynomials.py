"""Polynomials over a field: coefficients along the last axis, the constant first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpu_executor.device_array import DeviceArray
from gpu_executor.dispatch import ArrayCopy
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.fields import host_scans
from gpu_executor.fields.array import FieldArray
from gpu_executor.ops import scans as card_scans

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field

MOST_COEFFICIENTS = 1 << 15
"""Of one evaluation by Horner's rule; longer polynomials are evaluated in parts, since a software
driver ends loops of 65,536 turns."""


def resized(field: Field, a: FieldArray, length: int) -> FieldArray:
    """Polynomials of another length: cut, or filled up with zeros."""
    if not a.ndim:
        raise ArgumentShapeError("a polynomial has an axis of coefficients")
    *leading, old = a.shape
    if old == length:
        return a
    element = field.prime.element_shape
    shape = (*leading, length, *element)
    data = a.data
    if isinstance(data, DeviceArray):
        made = card_scans.resize_rows(a.device, field.prime, data, math.prod(leading), old, length)
        return FieldArray(field, made.reshape(*shape), a.form)
    whole = np.zeros(shape, data.dtype)
    kept = min(old, length)
    kept_ones = (*[slice(None)] * len(leading), slice(kept))
    whole[kept_ones] = data[kept_ones]
    return FieldArray(field, whole, a.form)


def multiplied(field: Field, a: FieldArray, b: FieldArray) -> FieldArray:
    """The product of polynomials, by transforms of twice the length."""
    if not a.ndim or not b.ndim or 0 in (a.shape[-1], b.shape[-1]):
        raise ArgumentShapeError("a polynomial has an axis of coefficients, one at least")
    length = a.shape[-1] + b.shape[-1] - 1
    size = 1 << (length - 1).bit_length()
    values = [field.ntt(resized(field, each, size), order_out="reversed") for each in (a, b)]
    product = field.intt(field.mul(*values), order_in="reversed")
    return resized(field, product, length)


def evaluated(field: Field, a: FieldArray, points: FieldArray) -> FieldArray:
    """One polynomial at many points."""
    if a.ndim != 1 or not a.shape[0]:
        raise ArgumentShapeError(f"one polynomial is wanted, and the shape is {a.shape}")
    data, at = a.data, points.data
    if not isinstance(data, DeviceArray) or not isinstance(at, DeviceArray):
        flat = points.reshape(-1).numpy()
        found = host_scans.evaluate(field.prime, a.numpy(), flat)
        return FieldArray(field, found.reshape(at.shape), field.form)
    device = a.device
    starts = range(0, a.shape[0], MOST_COEFFICIENTS)
    total: FieldArray | None = None
    step = field.power(points, MOST_COEFFICIENTS) if len(starts) > 1 else points
    for start in reversed(starts):
        part = data[start : start + MOST_COEFFICIENTS]
        values = card_scans.evaluate(device, field.prime, part, at).reshape(*at.shape)
        value = FieldArray(field, values, field.form)
        total = value if total is None else field.fma(total, step, value)
    assert total is not None
    return total


def divided_by_vanishing(field: Field, a: FieldArray, n: int) -> tuple[FieldArray, FieldArray]:
    """Quotient and remainder by X^n - 1, the polynomial that vanishes on the roots of order n."""
    if n < 1 or a.ndim != 1:
        raise ArgumentShapeError(f"one polynomial and n of 1 at least, not {a.shape} and {n}")
    rows = max(-(-a.shape[0] // n), 1)
    parts = resized(field, a, rows * n).reshape(rows, n)
    # X^n is 1: a part above stands for itself one place lower in the quotient, and for all below.
    sums = [parts[rows - 1]]
    for row in range(rows - 2, -1, -1):
        sums.append(field.add(parts[row], sums[-1]))
    remainder = sums[-1]
    quotient = joined(field, sums[-2::-1]) if rows > 1 else resized(field, a, 0)
    return resized(field, quotient, max(a.shape[0] - n, 0)), remainder


def joined(field: Field, rows: list[FieldArray]) -> FieldArray:
    """Arrays of one axis, one behind the other."""
    first = rows[0]
    if not first.on_device:
        words = np.concatenate([row.numpy() for row in rows])
        return FieldArray(field, words, first.form)
    length = sum(row.shape[0] for row in rows)
    whole = first.device.empty((length, *field.prime.element_shape), field.prime.column_dtype)
    steps, start = [], 0
    for row in rows:
        assert isinstance(row.data, DeviceArray)
        end = start + row.shape[0]
        steps.append(ArrayCopy(row.data, whole[start:end]))
        start = end
    first.device.submit(steps)
    return FieldArray(field, whole, first.form)
