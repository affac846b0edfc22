"""Points of curves over large prime fields from compressed bytes and to compressed bytes, on a
device, and the check that they are in the group of prime order: a few dispatches for all points.

What is wrong with a point is a code, one word for each point. Nothing here waits for the device.
"""

from __future__ import annotations

import numpy as np

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice, Dispatch
from gpu_executor.kernels.passes import encoding_kernel
from gpu_executor.ops import element_bytes, powers
from gpu_executor.ops.elementwise import Words, split_axes
from gpu_executor.ops.points import AFFINE, count_bindable, count_points, make_points, mul
from gpu_executor.primes import Prime, words
from gpu_executor.primes.curve_key import CurveKey

WORD = np.dtype(np.uint32)
GOOD, NOT_BELOW, NO_ROOT, SIGNED_ZERO, OUTSIDE, OFF_CURVE, INFINITE = range(7)
"""The codes of glsl/encodings/point_codes.glsl."""
HAS_SIGN, IS_INFINITE = 1, 2
"""The flags of an encoded point."""


def can_decode(device: ArrayDevice | None, curve: CurveKey, width: int) -> bool:
    """Whether the device decodes points whose x has so many bytes: square roots are powers, and the
    field has kernels for bytes."""
    if curve.degree > 1 or curve.prime.modulus % 4 != 3:
        return False
    return element_bytes.can_convert(device, curve.prime, width)


def decode_points(
    curve: CurveKey, encoded: DeviceArray, flags: DeviceArray, *, big_endian: bool, larger: bool
) -> tuple[DeviceArray, DeviceArray]:
    """Affine points (n) and their codes, from the bytes of x (n, width) and the flags (n). With
    `larger`, y has the sign if y > -y, else if it is odd. A point with a code other than 0 has no
    meaning."""
    device: ArrayDevice = encoded.storage.device
    prime, count = curve.prime, len(encoded)
    points = make_points(device, curve, count, coordinates=AFFINE)
    codes = device.empty((count,), WORD)
    if not count:
        return points, codes
    x, right = (device.empty((count, *prime.element_shape), prime.column_dtype) for _ in range(2))
    below = device.empty((count,), WORD)
    coefficients = _put_elements(device, prime, curve.a[0], curve.b[0])
    kernel, push = encoding_kernel(prime, "right_side"), (int(big_endian),)
    arrays: tuple[DeviceArray, ...] = encoded, coefficients, x, right, below
    device.submit([Dispatch(kernel, arrays, count, push, grid_stride=True, elementwise=1)])
    roots = powers.power(prime, right, (prime.modulus + 1) // 4, prime.form)
    assert isinstance(roots, DeviceArray)
    kernel, push = encoding_kernel(prime, "choose_root"), (int(larger),)
    arrays = x, right, roots, flags, below, points, codes
    device.submit([Dispatch(kernel, arrays, count, push, grid_stride=True, elementwise=1)])
    return points, codes


def can_encode(device: ArrayDevice | None, curve: CurveKey, width: int) -> bool:
    """Whether the device writes compressed points whose x has so many bytes."""
    return curve.degree == 1 and element_bytes.can_convert(device, curve.prime, width)


def encode_points(
    curve: CurveKey,
    points: DeviceArray,
    flags: tuple[int, int, int],
    *,
    big_endian: bool,
    larger: bool,
) -> DeviceArray:
    """The bytes (n, width) of x of affine points (n). The most significant byte has the flags of a
    point without a sign, of one with the sign, or of infinity; `decode_points` says what a sign
    is."""
    device: ArrayDevice = points.storage.device
    count = count_points(curve, points)
    encoded = device.empty((count, curve.prime.element_bytes), element_bytes.BYTE)
    if count:
        kernel = encoding_kernel(curve.prime, "compress_points")
        push = int(big_endian), int(larger), *flags
        arrays = points, encoded
        device.submit([Dispatch(kernel, arrays, count, push, grid_stride=True, elementwise=1)])
    return encoded


def can_compare_images(device: ArrayDevice | None, curve: CurveKey) -> bool:
    """Whether the device has the kernel of `compare_images`."""
    return curve.degree == 1 and element_bytes.can_convert(
        device, curve.prime, curve.prime.element_bytes
    )


def compare_images(
    curve: CurveKey, points: DeviceArray, x_factor: int, y_factor: int, scalar: Words
) -> DeviceArray:
    """The codes (n) of affine points: `OUTSIDE` unless (x_factor x, y_factor y) is the multiple of
    the point by a scalar, given in words without axes."""
    device: ArrayDevice = points.storage.device
    count = count_points(curve, points)
    codes = device.empty((count,), WORD)
    if not count:
        return codes
    flat = points.reshape((count, AFFINE, *curve.coordinate_shape))
    factors = _put_elements(device, curve.prime, x_factor, y_factor)
    kernel = encoding_kernel(curve.prime, "has_image")
    for part in split_axes((count,), count_bindable(device, curve)):
        own, found = flat[part], codes[part]
        multiples = mul(curve, own, np.broadcast_to(scalar, (found.size, *scalar.shape)))
        arrays = own, multiples, factors, found
        device.submit([Dispatch(kernel, arrays, found.size, grid_stride=True)])
    return codes


def find_codes(curve: CurveKey, points: DeviceArray) -> DeviceArray:
    """The codes (n) of affine points (n), whose coordinates may be any words: `NOT_BELOW`,
    `OFF_CURVE`, `INFINITE` or `GOOD`. The field is prime, or of degree 2 with u^2 = -1."""
    device: ArrayDevice = points.storage.device
    assert curve.degree == 1 or (curve.degree == 2 and curve.nonresidue == curve.prime.modulus - 1)
    count = count_points(curve, points)
    codes = device.empty((count,), WORD)
    if not count:
        return codes
    coefficients = _put_elements(device, curve.prime, *curve.a, *curve.b)
    kernel = encoding_kernel(curve.prime, "on_curve")
    for part in split_axes((count,), count_bindable(device, curve)):
        own, found = points[part], codes[part]
        arrays = own, coefficients, found
        push = (curve.degree,)
        device.submit([Dispatch(kernel, arrays, found.size, push, grid_stride=True)])
    return codes


def _put_elements(device: ArrayDevice, prime: Prime, *values: int) -> DeviceArray:
    """Elements of the field on the device, which caches them."""
    own = words.from_ints(prime, [prime.in_form(each) for each in values])
    return device.cache(("elements", prime, values), lambda: device.put(own))
