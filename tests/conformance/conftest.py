"""The backend under test: each backend in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

import gpu_executor as gx
from gpu_executor.backend import BACKENDS, SUPPORTED_BY, Backend, open_backend

Case = TypeVar("Case")


def limit_cases(backend: Backend, cases: Sequence[Case]) -> Sequence[Case]:
    """All cases, but only the last one for the one-shot backend, which opens a device for each call
    and takes a quarter of a second for it."""
    return cases[-1:] if backend.name == "vulkan-one-shot" else cases


UNDER_TEST = (*BACKENDS, "executor")
"""The names of the backends, and that of a `GpuExecutor` on a Vulkan device."""


def open_under_test(name: str) -> Backend:
    """Open a backend by its name; "executor" is a `GpuExecutor`."""
    return gx.GpuExecutor("vulkan") if name == "executor" else open_backend(name)


def list_able(method: str) -> tuple[str, ...]:
    """The names of those that support a method."""
    able = SUPPORTED_BY.get(method, tuple(BACKENDS))
    return (*able, "executor")


@pytest.fixture(scope="module", params=UNDER_TEST)
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened
