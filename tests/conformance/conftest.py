"""The backend under test: each backend in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TypeVar

import pytest

import gpu_executor as gx
from gpu_executor.backend import BACKENDS, SUPPORTED_BY, Backend, open_backend
from tests.support.swiftshader import use_swiftshader

Case = TypeVar("Case")


def limit_cases(backend: Backend, cases: Sequence[Case]) -> Sequence[Case]:
    """All cases, but only the last one for the one-shot backend, which opens a device for each call
    and takes a quarter of a second for it."""
    return cases[-1:] if backend.name == "vulkan-one-shot" else cases


UNDER_TEST = (*BACKENDS, "executor")
"""The names of the backends, and that of a `GpuExecutor` on a Vulkan device."""


SWIFTSHADER = "swiftshader"
"""A Vulkan backend on the other software driver, which has no 64-bit types."""


@contextlib.contextmanager
def open_under_test(name: str) -> Iterator[Backend]:
    """Open a backend by its name; "executor" is a `GpuExecutor`. Devices that are opened meanwhile
    are those of the same driver."""
    with contextlib.ExitStack() as opened:
        if name == SWIFTSHADER:
            opened.enter_context(use_swiftshader())
            yield opened.enter_context(open_backend("vulkan"))
        elif name == "executor":
            yield opened.enter_context(gx.GpuExecutor("vulkan"))
        else:
            yield opened.enter_context(open_backend(name))


def list_able(method: str) -> tuple[str, ...]:
    """The names of those that support a method."""
    able = SUPPORTED_BY.get(method, tuple(BACKENDS))
    return (*able, "executor")


def without_swiftshader(method: str) -> pytest.MarkDecorator:
    """Run a test on all that support a method but SwiftShader, which takes many seconds to compile
    transforms, and minutes for products of matrices."""
    return pytest.mark.parametrize("backend", list_able(method), indirect=True, scope="module")


@pytest.fixture(scope="module", params=UNDER_TEST)
def backend(request: pytest.FixtureRequest, gpu: gx.PersistentVulkanBackend) -> Iterator[Backend]:
    with open_under_test(request.param) as opened:
        yield opened
