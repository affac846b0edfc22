"""The mix: which kernels, how large, on what values, and what must come out.

Results are computed beforehand, small ones of fields by Python's integers and the others by the
kernels' references in NumPy, so that a device which spoils its inputs is found out too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_executor.call import Array
from gpu_executor.cpu import exact
from gpu_executor.errors import ElementRangeError
from gpu_executor.kernel import Kernel
from gpu_executor.kernels import load
from gpu_executor.primes import NAMED, Prime, words

Draw = np.random.Generator
LARGEST = 100_000
"""Elements of a call; sizes are drawn so that 1 to 10 come as often as 10,000 to 100,000."""
EMPTY_SHARE = 0.02
LARGEST_SIDE = 96
"""Of a matrix."""
BY_INTEGERS = 64
"""Elements up to which a field's result is computed by Python's integers."""
DIFFERENT = 1_024
"""Elements of a field to draw from, the edges among them."""

FIELDS = ("bls12_381_fq", "bls12_381_fr", "secp256k1", "goldilocks", "babybear")
FIELD_KERNELS = tuple(f"{field}_{operation}" for field in FIELDS for operation in ("add", "mul"))
KERNELS = (
    *FIELD_KERNELS,
    *("bls12_381_fq_sub", "goldilocks_sub"),
    *("vector_add_u32", "vector_add_f32"),
    *("reduce_sum_u32", "reduce_sum_f32", "reduce_max_f32", "reduce_min_u32"),
    *("matmul_u32", "matmul_f32"),
)
EXACT: dict[str, Callable[[Prime, list[int], list[int]], list[int]]] = {
    "add": exact.add,
    "sub": exact.sub,
    "mul": exact.mont_mul,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """What must come of a call with an element that is not below the modulus."""

    argument: int
    index: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call, and what must come of it."""

    kernel: Kernel
    arrays: tuple[Array, ...]
    expected: Array | Refusal

    @property
    def elements(self) -> int:
        """Of its first input."""
        types = self.kernel.types
        assert types is not None
        return self.arrays[0].size // math.prod(types[0].shape)

    def room(self) -> Array:
        """An array for the result, with something else in it."""
        assert not isinstance(self.expected, Refusal)
        other: Array = self.expected + 1
        return other

    def wrong(self, outcome: Any) -> str | None:
        """What is wrong with a result, or with the error that came instead; None: nothing."""
        if isinstance(self.expected, Refusal):
            found = _not_refused(self.expected, outcome)
        else:
            found = _differs(self.expected, outcome)
        return found and f"{self.kernel.name} of {self.elements:,} elements: {found}"


def _not_refused(expected: Refusal, outcome: Any) -> str | None:
    if not isinstance(outcome, ElementRangeError):
        return f"an element above the modulus came to {outcome!r:.100}"
    if (outcome.argument, outcome.index) != (expected.argument, expected.index):
        return f"refused for another element than {expected}: {outcome}"
    return None


def _differs(expected: Array, outcome: Any) -> str | None:
    if isinstance(outcome, BaseException):
        return f"{type(outcome).__name__}: {outcome}"
    if outcome.shape != expected.shape or outcome.dtype != expected.dtype:
        return f"a result of shape {outcome.shape} and dtype {outcome.dtype}"
    differ = np.flatnonzero(outcome != expected)
    return f"{len(differ):,} numbers are wrong, first {differ[0]:,}" if len(differ) else None


def draw_call(draw: Draw, name: str, largest: int = LARGEST, *, bad: bool = False) -> Call:
    """A call of a kernel; with `bad`, which a field's kernel must have, one that is refused."""
    kernel = load(name)
    field, _, operation = name.rpartition("_")
    if field in NAMED:
        count = size(draw, largest) if bad else _maybe_none(draw, largest)
        return _field_call(draw, kernel, NAMED[field], operation, count, bad=bad)
    if name.startswith("matmul"):
        arrays: tuple[Array, ...] = _matrices(draw, name, largest)
    else:
        count = _maybe_none(draw, largest) if kernel.split == "elements" else size(draw, largest)
        arrays = tuple(_numbers(draw, name, (count,)) for _ in range(kernel.inputs))
    assert kernel.reference is not None
    return Call(kernel, arrays, kernel.reference(*arrays))


def size(draw: Draw, largest: int) -> int:
    """As likely between 1 and 10 as between 1,000 and 10,000."""
    return int(math.exp(draw.uniform(0, math.log(largest + 0.999))))


def _maybe_none(draw: Draw, largest: int) -> int:
    """A call without elements is one too."""
    return 0 if draw.random() < EMPTY_SHARE else size(draw, largest)


def _field_call(
    draw: Draw, kernel: Kernel, prime: Prime, operation: str, count: int, *, bad: bool
) -> Call:
    known = field_elements(prime)
    a, b = (known[draw.integers(0, len(known), count)] for _ in range(2))
    if bad:
        refusal = Refusal(int(draw.integers(0, 2)), int(draw.integers(0, count)))
        (a, b)[refusal.argument][refusal.index] = np.iinfo(a.dtype).max
        return Call(kernel, (a, b), refusal)
    if count > BY_INTEGERS:
        assert kernel.reference is not None
        return Call(kernel, (a, b), kernel.reference(a, b))
    integers = EXACT[operation](prime, words.to_ints(prime, a), words.to_ints(prime, b))
    return Call(kernel, (a, b), words.from_ints(prime, integers))


@functools.cache
def field_elements(prime: Prime) -> Array:
    """Values at which carries and reductions change, and any others."""
    draw, p = np.random.default_rng(prime.modulus % (1 << 32)), prime.modulus
    edges = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1] * 20
    others = [int.from_bytes(draw.bytes(4 * prime.words), "little") % p for _ in range(DIFFERENT)]
    return words.from_ints(prime, edges + others)


def _matrices(draw: Draw, name: str, largest: int) -> tuple[Array, Array]:
    side = max(min(LARGEST_SIDE, math.isqrt(largest)), 1)
    m, k, n = (size(draw, side) for _ in range(3))
    return _numbers(draw, name, (m, k), below=256), _numbers(draw, name, (k, n), below=256)


def _numbers(draw: Draw, name: str, shape: tuple[int, ...], below: int = 1 << 32) -> Array:
    """Whole numbers. A product of matrices of floats is then exact in whatever order it is summed,
    as long as it stays below 2^24; the other kernels have one order."""
    if name.endswith("f32") and below == 1 << 32:
        return draw.standard_normal(shape, np.float32)
    whole = draw.integers(0, below, shape, np.uint32)
    return whole.astype(np.float32) if name.endswith("f32") else whole
