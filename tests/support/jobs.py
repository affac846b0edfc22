"""Jobs for tests of batches and streams: pairs of arrays, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import gpu_executor as gx
from gpu_executor.primes import BLS12_381_FQ, words
from gpu_executor.vulkan.binding import vk
from tests.conftest import elements

Array = npt.NDArray[Any]
Job = tuple[Array, Array]

FQ = BLS12_381_FQ
FQ_ADD = gx.kernels.load("bls12_381_fq_add")
ADD_U32 = gx.kernels.load("vector_add_u32")
TOO_LARGE = np.iinfo(np.uint64).max


def field_job(count: int, seed: int = 1) -> Job:
    """Two arrays of field elements."""
    first, second = elements(FQ, count, seed), elements(FQ, count, seed + 1)
    return words.from_ints(FQ, first), words.from_ints(FQ, second)


def field_jobs(*counts: int) -> list[Job]:
    return [field_job(count, 2 * number) for number, count in enumerate(counts)]


def word_jobs(*counts: int) -> list[Job]:
    """The same of plain 32-bit words, for jobs that are many or large."""
    draw = np.random.default_rng(sum(counts))
    return [
        (draw.integers(0, 1 << 32, n, np.uint32), draw.integers(0, 1 << 32, n, np.uint32))
        for n in counts
    ]


def check_sums(results: Sequence[Array], jobs: Sequence[Job]) -> None:
    """Every job's sum, in the field or in 32 bits, and in the jobs' order."""
    assert len(results) == len(jobs)
    for result, (a, b) in zip(results, jobs, strict=True):
        expected = a + b if a.dtype == np.uint32 else words.add(FQ, a, b)
        assert (result.shape, result.dtype) == (a.shape, a.dtype)
        np.testing.assert_array_equal(result, expected)


def watch(
    monkeypatch: pytest.MonkeyPatch, name: str, before: Callable[..., object] = lambda *_: None
) -> list[tuple[Any, ...]]:
    """Notes the arguments of every call of an entry point, after `before` has seen them."""
    call, seen = getattr(vk, name), list[tuple[Any, ...]]()

    def watched(*arguments: Any) -> Any:
        seen.append(arguments)
        before(*arguments)
        return call(*arguments)

    monkeypatch.setattr(vk, name, watched)
    return seen
