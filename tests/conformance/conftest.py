"""The backend under test: each backend in turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

import gpu_executor as gx
from gpu_executor.backend import BACKENDS, Backend, open_backend

Case = TypeVar("Case")


def limit_cases(backend: Backend, cases: Sequence[Case]) -> Sequence[Case]:
    """All cases, but only the last one for the one-shot backend, which opens a device for each call
    and takes a quarter of a second for it."""
    return cases[-1:] if backend.name == "vulkan-one-shot" else cases


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_backend(request.param) as opened:
        yield opened
