"""Sums, running products and inverses of arrays wherever they live.

On a card it is `ops.scans` that computes them, on the host `host_scans`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from gpu_executor.device_array import DeviceArray, Shape
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import host_scans
from gpu_executor.fields.array import FieldArray, Words
from gpu_executor.fields.operands import ready, zeros
from gpu_executor.ops import scans as card_scans

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field


def sums(field: Field, a: FieldArray, axis: int | None) -> FieldArray:
    """The sum of all elements, or of each row."""
    array = ready(field, a)
    rows, columns, shape = _rows(array, axis)
    if columns == 0:
        return zeros(field, shape, array)
    data, prime = array.data, field.prime
    found: Words | DeviceArray
    if isinstance(data, DeviceArray):
        found = card_scans.sum_rows(array.device, prime, data, rows, columns)
    else:
        in_rows = data.reshape(rows, columns, *prime.element_shape)
        found = host_scans.sum_rows(prime, in_rows)
    return FieldArray(field, found, field.form).reshape(*shape)


def running_products(field: Field, a: FieldArray) -> FieldArray:
    """Every element times all before it in its row."""
    array = ready(field, a)
    rows, columns, _ = _rows(array, -1)
    data, prime = array.data, field.prime
    if not isinstance(data, DeviceArray):
        in_rows = data.reshape(rows, columns, *prime.element_shape)
        products = host_scans.running_products(prime, in_rows)
        return FieldArray(field, products.reshape(data.shape), field.form)
    result = array.device.empty(data.shape, data.dtype)
    if array.size:
        card_scans.running_products(array.device, prime, data, result, rows, columns)
    return FieldArray(field, result, field.form)


def inverses(field: Field, a: FieldArray, zero: Literal["zero", "error"]) -> FieldArray:
    """1 / a; of 0 it is 0, or an error."""
    array = ready(field, a)
    if zero not in ("zero", "error"):
        raise ArgumentTypeError(f"zero is 'zero' or 'error', not {zero!r}")
    if zero == "error" and array.size:
        found = np.flatnonzero(field.equal(array, 0))
        if found.size:
            raise ZeroDivisionError(f"{field.name}: element {found[0]} is 0, without an inverse")
    data, prime = array.data, field.prime
    if not isinstance(data, DeviceArray):
        inverted = host_scans.invert(prime, data.reshape(-1, *prime.element_shape))
        return FieldArray(field, inverted.reshape(data.shape), field.form)
    result = array.device.empty(data.shape, data.dtype)
    if array.size:
        card_scans.invert(array.device, prime, data, result)
    return FieldArray(field, result, field.form)


def _rows(array: FieldArray, axis: int | None) -> tuple[int, int, Shape]:
    """Rows, their length, and the shape of a result of one element for each."""
    if axis not in (None, -1):
        raise ArgumentShapeError(f"axis is -1, the last, or None for all; not {axis}")
    if axis is None or array.ndim < 1:
        return 1, array.size, ()
    *leading, columns = array.shape
    return math.prod(leading), columns, tuple(leading)
