"""Random kernel calls, each with its expected result.

The expected result is computed before the call, so that a device which overwrites its inputs is
detected too; in-out arguments are compared with copies of them. Small field results come from
Python integers, all others from the kernels' NumPy references.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from gpu_executor.calls.call import Array
from gpu_executor.cpu import field_oracle
from gpu_executor.cpu.backend import CpuBackend
from gpu_executor.errors import ElementRangeError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.kernels.catalogue import split_field_name
from gpu_executor.primes import NAMED, Prime, words
from gpu_executor.soak.kernels import KERNELS as SOAK_KERNELS

MAX_ELEMENTS = 100_000
"""The number of elements of the largest call."""
EMPTY_SHARE = 0.02
"""Share of the calls that have no elements."""
MAX_MATRIX_SIDE = 96
MAX_EXACT_ELEMENTS = 64
"""Field results of up to this many elements are computed with Python integers."""
RANDOM_FIELD_ELEMENTS = 1_024
"""The number of random elements of each field that operands are drawn from, in addition to the edge
values."""

FIELDS = ("bls12_381_fq", "bls12_381_fr", "secp256k1_fq", "goldilocks", "babybear")
FIELD_KERNELS = tuple(
    f"{field}_{operation}" for field in FIELDS for operation in ("add", "mont_mul")
)
KERNELS = (
    *FIELD_KERNELS,
    *("bls12_381_fq_sub", "goldilocks_sub"),
    *("vector_add_u32", "vector_add_f32"),
    *("reduce_sum_u32", "reduce_sum_f32", "reduce_max_f32", "reduce_min_u32"),
    *("matmul_u32", "matmul_f32"),
    *SOAK_KERNELS,
)
EXACT_OPERATIONS: dict[str, Callable[[Prime, list[int], list[int]], list[int]]] = {
    "add": field_oracle.add,
    "sub": field_oracle.sub,
    "mont_mul": field_oracle.mont_mul,
}


@dataclass(frozen=True, slots=True)
class ExpectedRefusal:
    """The position of an element that is not below the modulus, for which the call must be
    refused.
    """

    argument: int
    index: int


@dataclass(frozen=True, slots=True)
class CheckedCall:
    """A kernel call and its expected result."""

    kernel: Kernel
    arrays: tuple[Array, ...]
    expected: Array | ExpectedRefusal
    params: tuple[int, ...] | None = None
    in_outs: tuple[tuple[int, Array], ...] = ()
    """The positions of in-out arguments among the arrays, and copies of these arrays."""

    @property
    def elements(self) -> int:
        """The number of elements of the first array."""
        passed = next(each.type for each in self.kernel.arguments if each.is_input)
        return self.arrays[0].size // math.prod(passed.shape)

    def make_output(self) -> Array:
        """Return an array for the result, filled with wrong values."""
        assert not isinstance(self.expected, ExpectedRefusal)
        output: Array = np.asarray(self.expected + 1)  # a sum of arrays of shape () is a scalar
        return output

    def find_error(self, outcome: Any) -> str | None:
        """Describe what is wrong with a result or an exception; None if it is as expected."""
        if isinstance(self.expected, ExpectedRefusal):
            error = _check_refusal(self.expected, outcome)
        else:
            error = _check_result(self.expected, outcome) or self._find_changed_argument()
        return error and f"{self.kernel.name} of {self.elements:,} elements: {error}"

    def _find_changed_argument(self) -> str | None:
        for position, before in self.in_outs:
            if not np.array_equal(self.arrays[position], before):
                return f"argument {position} was changed, though it was not passed as out="
        return None


def _check_refusal(expected: ExpectedRefusal, outcome: Any) -> str | None:
    if not isinstance(outcome, ElementRangeError):
        return f"an element above the modulus was accepted and gave {outcome!r:.100}"
    if (outcome.argument, outcome.index) != (expected.argument, expected.index):
        return f"refused for another element than {expected}: {outcome}"
    return None


def _check_result(expected: Array, outcome: Any) -> str | None:
    if isinstance(outcome, BaseException):
        return f"{type(outcome).__name__}: {outcome}"
    if outcome.shape != expected.shape or outcome.dtype != expected.dtype:
        return f"a result of shape {outcome.shape} and dtype {outcome.dtype}"
    differ = np.flatnonzero(outcome != expected)
    return f"{len(differ):,} wrong values, the first at {differ[0]:,}" if len(differ) else None


def draw_call(
    rng: Generator, name: str, max_elements: int = MAX_ELEMENTS, *, invalid: bool = False
) -> CheckedCall:
    """Return a random call of the named kernel.

    With `invalid`, which only field kernels take, one element is not below the modulus.
    """
    kernel = SOAK_KERNELS[name]() if name in SOAK_KERNELS else load(name)
    if found := split_field_name(name):
        field, operation = found
        count = draw_size(rng, max_elements) if invalid else _draw_count(rng, max_elements)
        return _draw_field_call(rng, kernel, NAMED[field], operation, count, invalid=invalid)
    if name.startswith("matmul"):
        arrays: tuple[Array, ...] = _draw_matrices(rng, name, max_elements)
    else:
        draw_length = _draw_count if kernel.split == "elements" else draw_size
        count = draw_length(rng, max_elements)
        arrays = tuple(_draw_numbers(rng, name, (count,)) for _ in range(kernel.inputs))
    parameters = len(kernel.make_parameters(b"").names) if name in SOAK_KERNELS else 0
    params = tuple(int(each) for each in rng.integers(0, 1 << 32, parameters)) or None
    passed = [argument for argument in kernel.arguments if argument.is_input]
    return CheckedCall(
        kernel,
        arrays,
        CpuBackend().run(kernel, *arrays, params=params),
        params,
        tuple((at, arrays[at].copy()) for at, each in enumerate(passed) if each.is_output),
    )


def draw_size(rng: Generator, largest: int) -> int:
    """Return a log-uniform size from 1: 1 to 10 is as likely as 1,000 to 10,000."""
    return int(math.exp(rng.uniform(0, math.log(largest + 0.999))))


def _draw_count(rng: Generator, largest: int) -> int:
    """Return a log-uniform size, or sometimes 0: empty calls are valid."""
    return 0 if rng.random() < EMPTY_SHARE else draw_size(rng, largest)


def _draw_field_call(
    rng: Generator, kernel: Kernel, prime: Prime, operation: str, count: int, *, invalid: bool
) -> CheckedCall:
    elements = field_elements(prime)
    a, b = (elements[rng.integers(0, len(elements), count)] for _ in range(2))
    if invalid:
        refusal = ExpectedRefusal(int(rng.integers(0, 2)), int(rng.integers(0, count)))
        (a, b)[refusal.argument][refusal.index] = np.iinfo(a.dtype).max
        return CheckedCall(kernel, (a, b), refusal)
    if count > MAX_EXACT_ELEMENTS:
        assert kernel.reference is not None
        return CheckedCall(kernel, (a, b), kernel.reference(a, b))
    operate = EXACT_OPERATIONS[operation]
    integers = operate(prime, words.to_ints(prime, a), words.to_ints(prime, b))
    return CheckedCall(kernel, (a, b), words.from_ints(prime, integers))


@functools.cache
def field_elements(prime: Prime) -> Array:
    """Return the elements to draw operands from: random elements, and edge values for carries and
    reductions.
    """
    rng, p = np.random.default_rng(prime.modulus % (1 << 32)), prime.modulus
    edges = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1] * 20
    drawn = (rng.bytes(4 * prime.words) for _ in range(RANDOM_FIELD_ELEMENTS))
    return words.from_ints(prime, edges + [int.from_bytes(each, "little") % p for each in drawn])


def _draw_matrices(rng: Generator, name: str, max_elements: int) -> tuple[Array, Array]:
    side = max(min(MAX_MATRIX_SIDE, math.isqrt(max_elements)), 1)
    m, k, n = (draw_size(rng, side) for _ in range(3))
    return (
        _draw_numbers(rng, name, (m, k), below=256),
        _draw_numbers(rng, name, (k, n), below=256),
    )


def _draw_numbers(rng: Generator, name: str, shape: tuple[int, ...], below: int = 1 << 32) -> Array:
    """Return random uint32 or float32 values; the suffix of the kernel's name selects the type.

    Floats with a bound are integers. A float matrix product whose sums stay below 2^24 is then
    exact in any summation order; the other float kernels have a fixed order.
    """
    if name.endswith("f32") and below == 1 << 32:
        return rng.standard_normal(shape, np.float32)
    integers = rng.integers(0, below, shape, np.uint32)
    return integers.astype(np.float32) if name.endswith("f32") else integers
