"""Powers of elements, with one exponent for all of them.

A device raises all elements in one dispatch. The host takes the fastest of three ways: NumPy's
integers for elements of one word, Python's `pow` for few elements, and NumPy's products of limbs
(`words.power`) for many. A negative exponent inverts all elements together, and so does an exponent
close to p - 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpu_executor.arrays.device_array import DeviceArray
from gpu_executor.calls.dispatch import ArrayDevice
from gpu_executor.kernels.elements import element_kernel
from gpu_executor.ops.elementwise import (
    ElementData,
    Words,
    apply_kernel,
    can_pack,
    convert,
    count_elements,
    put_exponent,
    with_f64_limbs,
)
from gpu_executor.ops.operation import operation
from gpu_executor.ops.scans import invert
from gpu_executor.primes import Form, Prime, words
from gpu_executor.primes.number_theory import invert_all

MIN_NUMPY_POWERS = 32
"""From this many elements of one word on, powers on the host are computed with NumPy's integers."""
MIN_LIMB_POWERS = 400
"""From this many larger elements on, powers on the host are computed with NumPy's limbs. On one
Xeon core of 2.5 GHz, a square in BLS12-381 Fr takes 0.91 us either way for 400 elements; for 1,000
it takes 0.55 us with limbs and 0.91 us with `pow`, for 100,000 0.38 and 1.2 us. Conversions are
included."""
MIN_SHARED_FACTOR = 4
"""From this many powers in Montgomery form on, one more power gives a factor that corrects all."""
INVERSION_PRODUCTS, SHARED_INVERSION_PRODUCTS = 4, 40
"""What the inverses of n elements cost, in products: so many for each, and so many for all."""


@operation
def power(prime: Prime, data: ElementData, exponent: int, form: Form) -> ElementData:
    """Every element to one power; a negative exponent inverts first, and the inverse of 0 is 0.

    On a device the form is that of the prime. An exponent of b bits takes b squares and at most
    b / 2 products per element. On the host the elements are in any form and stay in it.
    """
    return _power_on_host(prime, np.asarray(data), exponent, form)


@power.by_steps
def _power_by_steps(prime: Prime, data: DeviceArray, exponent: int, form: Form) -> DeviceArray:
    device: ArrayDevice = data.storage.device
    exponent_data = put_exponent(device, _reduce_exponent(prime, exponent))
    kernel = element_kernel(
        prime, "power", f64_limbs=with_f64_limbs(device, prime), packed=can_pack([data])
    )
    return apply_kernel(kernel, [data, exponent_data], (exponent_data.size,))


def _reduce_exponent(prime: Prime, exponent: int) -> int:
    order = prime.modulus - 1
    # a^(p-1) = 1 for a != 0 (Fermat), so the exponent is reduced mod p-1. For a = 0 an exponent
    # other than 0 must not become 0: it becomes p-1.
    return exponent and (exponent % order or order)


# --- on the host ---


def _power_on_host(prime: Prime, data: Words, exponent: int, form: Form) -> Words:
    reduced, count = _reduce_exponent(prime, exponent), count_elements(prime, data)
    if reduced == 0:
        one = words.from_ints(prime, [prime.r_mod_p if form == "montgomery" else 1])
        return np.broadcast_to(one.reshape(prime.element_shape), data.shape).copy()
    if reduced == 1 or not count:
        return data.copy()
    if prime.words == 1 and count >= MIN_NUMPY_POWERS:
        return _raise_single_words(prime, data, reduced, form)
    signed = _find_short_exponent(prime, reduced, count)
    if count < MIN_LIMB_POWERS:
        ints = _raise_ints(prime, words.to_ints(prime, data), signed, form)
        return words.from_ints(prime, ints).reshape(data.shape)
    base = data if signed > 0 else _invert_on_host(prime, data, form)
    return words.power(prime, base, abs(signed), form)


def _find_short_exponent(prime: Prime, exponent: int, count: int) -> int:
    """Return an exponent in 1 .. p-1, or the negative exponent with the same powers of `count`
    elements if its powers take less time: p - 2 becomes -1."""
    negative = exponent - (prime.modulus - 1)
    inversion = INVERSION_PRODUCTS + SHARED_INVERSION_PRODUCTS // count
    if negative and negative.bit_length() + inversion < exponent.bit_length():
        return negative
    return exponent


def _raise_single_words(prime: Prime, data: Words, exponent: int, form: Form) -> Words:
    """Powers modulo a number below 2^32, so that products fit 64 bits."""
    modulus = np.uint64(prime.modulus)
    base = data.astype(np.uint64)
    if form == "montgomery":  # an element x is stored as x R
        base = base * np.uint64(prime.r_inverse) % modulus
    result: npt.NDArray[np.uint64] = base
    for bit in f"{exponent:b}"[1:]:
        result = result * result % modulus
        if bit == "1":
            result = result * base % modulus
    if form == "montgomery":
        result = result * np.uint64(prime.r_mod_p) % modulus
    return result.astype(data.dtype)


def _raise_ints(prime: Prime, ints: Sequence[int], exponent: int, form: Form) -> Sequence[int]:
    """Powers of the integers that the words of elements hold. The exponent is not 0."""
    p, before, after = prime.modulus, 1, 1
    if form == "montgomery":
        if len(ints) < MIN_SHARED_FACTOR:
            before, after = prime.r_inverse, prime.r_mod_p
        else:  # (x R)^e = x^e R * R^(e - 1)
            factor = prime.r_inverse if exponent > 0 else prime.r_mod_p
            after = pow(factor, abs(exponent - 1), p)
    if before != 1:
        ints = [each * before % p for each in ints]
    if exponent < 0:
        ints = invert_all(ints, p)
    if abs(exponent) > 1:
        ints = [pow(each, abs(exponent), p) for each in ints]
    return ints if after == 1 else [each * after % p for each in ints]


def _invert_on_host(prime: Prime, data: Words, form: Form) -> Words:
    """1 / x, and 0 for 0, of elements in any form, which stay in it."""
    inverses: ElementData = data
    if form == prime.form:
        inverses = invert(prime, inverses)
    else:
        inverses = convert(prime, inverses, prime.form)
        inverses = convert(prime, invert(prime, inverses), form)
    assert isinstance(inverses, np.ndarray)
    return inverses
