"""The element kernels on NumPy arrays, exact: what the CPU runs and the tests compare with.

Elements are in the form that they have on the card. Operands behind the first may be shorter; they
begin again when they end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gpu_executor.kernels.families import in_montgomery_form
from gpu_executor.primes import Prime, words

Array = npt.NDArray[Any]
Reference = Callable[..., Array]


def add(prime: Prime, a: Array, b: Array) -> Array:
    return words.add(prime, a, _as_long(prime, b, a.shape))


def sub(prime: Prime, a: Array, b: Array) -> Array:
    return words.sub(prime, a, _as_long(prime, b, a.shape))


def neg(prime: Prime, a: Array) -> Array:
    return words.sub(prime, np.zeros_like(a), a)


def double(prime: Prime, a: Array) -> Array:
    return words.add(prime, a, a)


def mul(prime: Prime, a: Array, b: Array) -> Array:
    product = _montgomery_product(prime, a, _as_long(prime, b, a.shape))
    # The product is R times too small for elements that are as they are.
    return product if in_montgomery_form(prime) else to_montgomery(prime, product)


def square(prime: Prime, a: Array) -> Array:
    return mul(prime, a, a)


def fma(prime: Prime, a: Array, b: Array, c: Array) -> Array:
    return add(prime, mul(prime, a, b), c)


def equal(prime: Prime, a: Array, b: Array) -> Array:
    return _all_columns(prime, a == _as_long(prime, b, a.shape)).astype(np.uint32)


def select(prime: Prime, condition: Array, a: Array, b: Array) -> Array:
    shape = condition.shape + prime.element_shape
    chosen = condition.astype(np.bool_).reshape(condition.shape + (1,) * len(prime.element_shape))
    return np.where(chosen, _as_long(prime, a, shape), _as_long(prime, b, shape))


def power(prime: Prime, a: Array, exponent: Array) -> Array:
    bits = int.from_bytes(exponent.astype("<u4").tobytes(), "little")
    one = prime.r_mod_p if in_montgomery_form(prime) else 1
    result = _repeated(prime, one, a.shape)
    for bit in f"{bits:b}":
        result = square(prime, result)
        if bit == "1":
            result = mul(prime, result, a)
    return result


def to_montgomery(prime: Prime, a: Array) -> Array:
    return _montgomery_product(prime, a, _repeated(prime, prime.r2_mod_p, a.shape))


def from_montgomery(prime: Prime, a: Array) -> Array:
    return _montgomery_product(prime, a, _repeated(prime, 1, a.shape))


REFERENCES: dict[str, Reference] = {
    "add": add,
    "sub": sub,
    "neg": neg,
    "double": double,
    "mul": mul,
    "square": square,
    "fma": fma,
    "equal": equal,
    "select": select,
    "power": power,
    "to_montgomery": to_montgomery,
    "from_montgomery": from_montgomery,
}


def _montgomery_product(prime: Prime, a: Array, b: Array) -> Array:
    return words.mul(_in_montgomery_form(prime.modulus), a, b)


@functools.cache
def _in_montgomery_form(modulus: int) -> Prime:
    """The modulus as a prime whose products are Montgomery's, in whatever form it is used."""
    return Prime("p", modulus)


def _as_long(prime: Prime, operand: Array, shape: tuple[int, ...]) -> Array:
    """The operand again and again, in the shape of the first one."""
    count = math.prod(shape[: len(shape) - len(prime.element_shape)])
    rows = operand.reshape(-1, *prime.element_shape)
    if len(rows) != count:
        rows = rows[np.arange(count) % len(rows)]
    return rows.reshape(shape)


def _repeated(prime: Prime, value: int, shape: tuple[int, ...]) -> Array:
    return _as_long(prime, words.from_ints(prime, [value]), shape)


def _all_columns(prime: Prime, equal: Array) -> Array:
    """Whether an element's columns are all equal."""
    return np.asarray(equal.all(axis=-1)) if prime.element_shape else equal
