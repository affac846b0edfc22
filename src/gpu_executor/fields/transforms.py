"""Number-theoretic transforms of arrays wherever they live, and which of them there are.

On a card it is `ops.transform` that computes them, on the host `host_transform`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_executor.device_array import DeviceArray
from gpu_executor.errors import ArgumentShapeError, ArgumentTypeError
from gpu_executor.fields import host_transform
from gpu_executor.fields.array import FieldArray
from gpu_executor.fields.operands import ready, whole
from gpu_executor.ops import transform as card_transform
from gpu_executor.ops.transform import TransformOptions

if TYPE_CHECKING:
    from gpu_executor.fields.field import Field


def transformed(field: Field, a: FieldArray, way: TransformOptions) -> FieldArray:
    """Every row of an array, which is its last axis."""
    array = ready(field, a)
    _check_way(field, way)
    log_n = _log_length(field, array)
    data, prime = array.data, field.prime
    if not isinstance(data, DeviceArray):
        rows = data.reshape(-1, 1 << log_n, *prime.element_shape)
        values = host_transform.transform(prime, rows, way)
        return FieldArray(field, values.reshape(data.shape), field.form)
    result = array.device.empty(data.shape, data.dtype)
    card_transform.transform(array.device, prime, data, log_n, way, result)
    return FieldArray(field, result, field.form)


def _check_way(field: Field, way: TransformOptions) -> None:
    for order in (way.order_in, way.order_out):
        if order not in ("natural", "reversed"):
            raise ArgumentTypeError(f"an order is 'natural' or 'reversed', not {order!r}")
    if way.coset is not None and whole(way.coset, "a coset's factor") % field.modulus == 0:
        raise ArgumentTypeError(f"{field.name}: a coset's factor is not 0")


def _log_length(field: Field, array: FieldArray) -> int:
    """k of rows of 2^k elements, for which the field has roots of unity."""
    length = array.shape[-1] if array.ndim else 0
    if length < 1 or length & length - 1:
        raise ArgumentShapeError(
            f"a transform takes rows of 2^k elements, not of {length} (shape {array.shape})"
        )
    log_n, most = length.bit_length() - 1, field.prime.two_adicity
    if log_n > most:
        raise ArgumentShapeError(
            f"{field.name} has roots of unity of order 2^{most} at most, and a transform of "
            f"2^{log_n} elements was asked for"
        )
    return log_n
