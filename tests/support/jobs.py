"""Jobs for tests of batches and streams: pairs of arrays, with their expected results."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.primes import BLS12_381_FQ, BLS12_381_FR, words
from gpu_executor.vulkan.binding import vk
from tests.conftest import elements

Array = npt.NDArray[Any]
Job = tuple[Array, Array]

FQ = BLS12_381_FQ
FQ_ADD = gx.kernels.load("bls12_381_fq_add")
ADD_U32 = gx.kernels.load("vector_add_u32")
TOO_LARGE = np.iinfo(np.uint64).max


def field_job(count: int, seed: int = 1) -> Job:
    """Two arrays of field elements, which the test may change."""
    return draw_field(count, seed).copy(), draw_field(count, seed + 1).copy()


@functools.lru_cache(maxsize=64)
def draw_field(count: int, seed: int) -> Array:
    """Field elements, which take long to draw."""
    return words.from_ints(FQ, elements(FQ, count, seed))


def field_jobs(*counts: int) -> list[Job]:
    return [field_job(count, 2 * number) for number, count in enumerate(counts)]


def word_jobs(*counts: int) -> list[Job]:
    """Pairs of 32-bit words, which are cheaper to make than field elements."""
    draw = np.random.default_rng(sum(counts))
    return [
        (draw.integers(0, 1 << 32, n, np.uint32), draw.integers(0, 1 << 32, n, np.uint32))
        for n in counts
    ]


def check_sums(results: Sequence[Array], jobs: Sequence[Job]) -> None:
    """Each result is the sum of its job's arrays, in the field or modulo 2^32."""
    assert len(results) == len(jobs)
    for result, (a, b) in zip(results, jobs, strict=True):
        expected = a + b if a.dtype == np.uint32 else words.add(FQ, a, b)
        assert (result.shape, result.dtype) == (a.shape, a.dtype)
        np.testing.assert_array_equal(result, expected)


def watch(
    monkeypatch: pytest.MonkeyPatch, name: str, before: Callable[..., object] = lambda *_: None
) -> list[tuple[Any, ...]]:
    """Record the arguments of every call of a Vulkan entry point; `before` is called first."""
    call, seen = getattr(vk, name), list[tuple[Any, ...]]()

    def watched(*arguments: Any) -> Any:
        seen.append(arguments)
        before(*arguments)
        return call(*arguments)

    monkeypatch.setattr(vk, name, watched)
    return seen


Case = tuple[gx.Kernel, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]


@functools.cache
def make_cases(most: int) -> list[Case]:
    """Kernels with arrays of up to `most` elements and the results that they must return. Tests
    share them."""
    cases: list[Case] = []
    for size in (1, 3, 64, 65, 127, 200, most):
        x = np.arange(size, dtype=np.uint32) * 7919
        cases.append((gx.kernels.load("vector_add_u32"), x, x[::-1], x + x[::-1]))
        for prime, operations in (
            (BLS12_381_FQ, (words.add, words.mont_mul)),
            (BLS12_381_FR, (words.sub,)),
        ):
            a, b = (words.from_ints(prime, elements(prime, size, seed)) for seed in (1, 2))
            for operation in operations:
                kernel = gx.kernels.load(f"{prime.name}_{operation.__name__}")
                cases.append((kernel, a, b, operation(prime, a, b)))
    return cases
