"""Products of matrices and vectors of elements, by the rules of `np.matmul`.

On a device each element of a product is computed by one invocation, or by several that share its
terms if the product has few elements. On the host elements of one and two words are split into
limbs, whose matrices NumPy multiplies in float64; others become Python integers. The sums are
reduced once for each element of the product.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray, Shape
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.errors import ArgumentShapeError
from gpu_executor.ops import elementwise, scans
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    broadcast_to,
    get_shape,
)
from gpu_executor.ops.operation import operation
from gpu_executor.ops.scans import make_elements, make_scan_kernel
from gpu_executor.primes import ElementLayout, Prime, encoding, words

ENOUGH_SUBGROUPS = 1
"""Up to as many elements of a product as invocations with so many subgroups for each scheduler,
several invocations share the terms of one."""
MAX_LIMB_WORDS, MAX_LIMB_TERMS = 2, 1 << 21
"""Words of elements that the host splits into 16-bit limbs, and products of limbs that it adds."""
MIN_TERMS, MAX_TERMS = 32, 4096
"""The fewest terms that an invocation adds if it shares them, and the most. A software driver ends
loops after 65,536 iterations, all elements of an invocation together."""


def multiply(prime: Prime, a: ElementData, b: ElementData) -> ElementData:
    """a @ b: k products and additions for each element of the result.

    The last two axes are matrices, the axes before them a batch, which is broadcast. An array of
    one axis is a row on the left, a column on the right, and the result lacks that axis.
    """
    shapes = [get_shape(prime, each) for each in (a, b)]
    rows, columns = check_shapes(prime, *shapes)
    (m, k), (_, n) = rows[-2:], columns[-2:]
    batch = elementwise.find_common_shape(prime, [rows[:-2], columns[:-2]])
    drops = [axis for axis, shape in ((-2, shapes[0]), (-1, shapes[1])) if len(shape) == 1]
    full = (*batch, m, n)
    shape = tuple(length for axis, length in enumerate(full, -len(full)) if axis not in drops)
    if not k or not math.prod(full):
        return elementwise.make_full(prime, shape, 0, a)
    left, right = (elementwise.reshape(prime, each, own) for each, own in ((a, rows), (b, columns)))
    return elementwise.reshape(prime, _multiply(prime, left, right, batch), shape)


def check_shapes(layout: ElementLayout, a: Shape, b: Shape) -> tuple[Shape, Shape]:
    """The shapes with the axis that a vector lacks; raises unless they can be multiplied."""
    rows = (1, *a) if len(a) == 1 else a
    columns = (*b, 1) if len(b) == 1 else b
    if not a or not b or rows[-1] != columns[-2]:
        raise ArgumentShapeError(
            f"{layout.name}: a product of matrices or vectors takes shapes (..., m, k) and "
            f"(..., k, n), not {a} and {b}"
        )
    return rows, columns


@operation
def _multiply(prime: Prime, a: ElementData, b: ElementData, batch: Shape) -> ElementData:
    """The elements, in flat order, of the products of matrices (..., m, k) and (..., k, n), which
    are not empty; their first axes are broadcast to `batch`."""
    left, right = np.asarray(a), np.asarray(b)
    if prime.words <= MAX_LIMB_WORDS and left.shape[-1] * 2 * prime.words <= MAX_LIMB_TERMS:
        sums = _multiply_limbs(prime, left, right)
    else:
        sums = np.matmul(*(encoding.words_to_ints(prime, each) for each in (left, right)))
    # In Montgomery form a product of words is x y R^2.
    product = sums * (1 if prime.canonical else prime.r_inverse) % prime.modulus
    return words.from_ints(prime, product.ravel().tolist())


@_multiply.by_steps
def _multiply_by_steps(prime: Prime, a: DeviceArray, b: DeviceArray, batch: Shape) -> DeviceArray:
    device: ArrayDevice = a.storage.device
    m, k = get_shape(prime, a)[-2:]
    n = get_shape(prime, b)[-1]
    rows = math.prod(batch) * m
    if math.prod(get_shape(prime, b)[:-2]) == 1:
        m = rows  # one matrix on the right serves all rows on the left
    else:
        b = _repeat_matrices(prime, b, batch)
    a = _repeat_matrices(prime, a, batch)
    elements = rows * n
    enough = device.info.round_invocations(ENOUGH_SUBGROUPS)
    slices = max(min(enough // elements, k // MIN_TERMS), -(-k // MAX_TERMS), 1)
    sums = make_elements(device, prime, elements * slices)
    kernel = make_scan_kernel(device, prime, "matrix_products")
    push_words = m, n, k, slices
    device.submit([Dispatch(kernel, (a, b, sums), elements * slices, push_words, grid_stride=True)])
    if slices == 1:
        return sums
    found = scans.sum_rows(prime, sums, elements, slices)
    assert isinstance(found, DeviceArray)
    return found


def _repeat_matrices(prime: Prime, matrices: DeviceArray, batch: Shape) -> DeviceArray:
    return broadcast_to(prime, matrices, (*batch, *get_shape(prime, matrices)[-2:]))


def _multiply_limbs(prime: Prime, a: Words, b: Words) -> npt.NDArray[np.object_]:
    """The product of matrices of integers, as products of matrices of 16-bit limbs in float64.

    A sum of at most 2^21 products of limbs is below 2^53, so it is exact in any order.
    """
    left, right = (
        np.ascontiguousarray(each)[..., None].view(np.uint16).astype(np.float64) for each in (a, b)
    )
    count = left.shape[-1]
    total: Any = 0
    for power in range(2 * count - 1):
        pairs = range(max(0, power - count + 1), min(count, power + 1))
        column = sum(np.matmul(left[..., i], right[..., power - i]) for i in pairs)
        total = total + np.asarray(column).astype(np.int64).astype(object) * (1 << 16 * power)
    return np.asarray(total)
