"""The operations of the element kernels in NumPy: exact, for the CPU backend and for tests.

Elements are in the form that the prime's family has on a device. Operands after the first may be
shorter; they are repeated.
"""

from __future__ import annotations

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
    return words.add(prime, a, _repeat_to(prime, b, a.shape))


def sub(prime: Prime, a: Array, b: Array) -> Array:
    return words.sub(prime, a, _repeat_to(prime, b, a.shape))


def neg(prime: Prime, a: Array) -> Array:
    return words.sub(prime, np.zeros_like(a), a)


def double(prime: Prime, a: Array) -> Array:
    return words.add(prime, a, a)


def mul(prime: Prime, a: Array, b: Array) -> Array:
    b = _repeat_to(prime, b, a.shape)
    return words.mont_mul(prime, a, b) if in_montgomery_form(prime) else words.mul(prime, a, b)


def square(prime: Prime, a: Array) -> Array:
    return mul(prime, a, a)


def fma(prime: Prime, a: Array, b: Array, c: Array) -> Array:
    return add(prime, mul(prime, a, b), c)


def equal(prime: Prime, a: Array, b: Array) -> Array:
    return _reduce_columns(prime, a == _repeat_to(prime, b, a.shape)).astype(np.uint32)


def select(prime: Prime, condition: Array, a: Array, b: Array) -> Array:
    shape = condition.shape + prime.element_shape
    selected = condition.astype(np.bool_).reshape(condition.shape + (1,) * len(prime.element_shape))
    return np.where(selected, _repeat_to(prime, a, shape), _repeat_to(prime, b, shape))


def power(prime: Prime, a: Array, exponent: Array) -> Array:
    bits = int.from_bytes(exponent.astype("<u4").tobytes(), "little")
    one = prime.r_mod_p if in_montgomery_form(prime) else 1
    result = _fill(prime, one, a.shape)
    for bit in f"{bits:b}":
        result = square(prime, result)
        if bit == "1":
            result = mul(prime, result, a)
    return result


def to_montgomery(prime: Prime, a: Array) -> Array:
    return words.mont_mul(prime, a, _fill(prime, prime.r2_mod_p, a.shape))


def from_montgomery(prime: Prime, a: Array) -> Array:
    return words.mont_mul(prime, a, _fill(prime, 1, a.shape))


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


def _repeat_to(prime: Prime, operand: Array, shape: tuple[int, ...]) -> Array:
    """Return the operand, repeated to the shape of the first one."""
    count = math.prod(shape[: len(shape) - len(prime.element_shape)])
    rows = operand.reshape(-1, *prime.element_shape)
    if len(rows) != count:
        rows = rows[np.arange(count) % len(rows)]
    return rows.reshape(shape)


def _fill(prime: Prime, value: int, shape: tuple[int, ...]) -> Array:
    return _repeat_to(prime, words.from_ints(prime, [value]), shape)


def _reduce_columns(prime: Prime, equal: Array) -> Array:
    """Return, for each element, whether all its columns are True."""
    return np.asarray(equal.all(axis=-1)) if prime.element_shape else equal
