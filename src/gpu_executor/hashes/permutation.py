"""`Permutation`: a permutation of states of field elements, with the parameters of its source."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gpu_executor.calls.arguments import is_integer
from gpu_executor.errors import ArgumentTypeError, ArgumentValueError
from gpu_executor.fields import Field, FieldArray
from gpu_executor.ops.field_hashes import Column
from gpu_executor.primes import Prime

MAX_WIDTH = 32
"""Elements of the widest state."""

MAX_PRODUCTS_EXPONENT = 64
"""Python integers are raised to larger powers one by one: products of columns would be slower."""


class Permutation(ABC):
    """A permutation of states of `width` elements of a field.

    Permutations are compared by identity: their constants are many.
    """

    module: ClassVar[str]
    """The name of its kernel, in kernels/glsl/field_hashes/."""

    def __init__(self, field: Field, width: int, source: str) -> None:
        """Args:
        field (Field): The field of the elements.
        width (int): The number of elements of a state.
        source (str): Where the parameters come from, with the commit.
        """
        self.field, self.width, self.source = field, width, source

    @property
    def prime(self) -> Prime:
        """The modulus of the elements."""
        return self.field.prime

    @property
    @abstractmethod
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """The specialization constants of the kernel."""

    @abstractmethod
    def list_constants(self) -> Sequence[int]:
        """The constants of the kernel, in its order."""

    @abstractmethod
    def permute(self, state: list[Column]) -> list[Column]:
        """The states after the permutation, as columns: an entry for each state."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.width} elements of {self.field.name}>"


# --- arithmetic of columns, all of whose entries are below the modulus ---


def raise_column(x: Column, exponent: int, modulus: int) -> Column:
    """x^exponent, exponent > 0."""
    if x.dtype == np.object_ and exponent > MAX_PRODUCTS_EXPONENT:
        raised: Column = np.frompyfunc(lambda each: pow(each, exponent, modulus), 1, 1)(x)
        return raised
    result = x
    for bit in f"{exponent:b}"[1:]:
        result = result * result % modulus
        if bit == "1":
            result = result * x % modulus
    return result


def multiply_sum(row: Sequence[int], state: Sequence[Column], modulus: int) -> Column:
    """The sum of products with integers; each product is reduced, so that columns of 64-bit
    integers do not overflow."""
    products = [x * factor % modulus for factor, x in zip(row, state, strict=True)]
    total: Column = np.add.reduce(products) % modulus
    return total


# --- parameters of the caller's ---


def check_exponent(prime: Prime, exponent: int | None) -> int:
    """The exponent of an S-box, by default the smallest that is one; raises for others."""
    if exponent is None:
        for each in range(3, 64, 2):
            if math.gcd(each, prime.modulus - 1) == 1:
                return each
        raise ArgumentValueError(
            f"{prime.name}: no x^e with e from 3 to 63 is a permutation, because all these e have "
            "a factor in common with p - 1"
        )
    exponent = parse_integer("exponent", exponent, 3, 63)
    if math.gcd(exponent, prime.modulus - 1) != 1:
        raise ArgumentValueError(
            f"x^{exponent} is no permutation of {prime.name}: {exponent} and p - 1 have a common "
            "factor"
        )
    return exponent


def parse_integer(name: str, value: Any, least: int, most: int) -> int:
    """An integer argument within bounds; the argument has that name in messages."""
    if not is_integer(value) or not least <= value <= most:
        raise ArgumentValueError(f"{name} must be an integer from {least} to {most}, not {value!r}")
    return int(value)


def read_elements(name: str, field: Field, values: Any, shape: tuple[int, ...]) -> list[Any]:
    """Integers of the caller's, in nested lists, or an array of the field, as nested lists of that
    shape; the argument has that name in messages. Integers must be below the modulus."""
    if isinstance(values, FieldArray):
        if values.field != field:
            raise ArgumentTypeError(
                f"{name} is an array of {values.field.name}, and the field is {field.name}"
            )
        found = values.to_host()
    else:
        found = field.encode(values)
    if found.size != math.prod(shape):
        raise ArgumentValueError(
            f"{name} has {found.size} elements; {' x '.join(map(str, shape))} are needed"
        )
    if found.shape not in (shape, (found.size,)):
        raise ArgumentValueError(
            f"{name} has the shape {found.shape}; it must be {shape}, or one list of all elements"
        )
    listed: list[Any] = np.reshape(found.ints(), shape).tolist()
    return listed
