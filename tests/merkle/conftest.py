"""The places where tests compute Merkle trees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import gpu_executor as gx
from gpu_executor.backend import Backend

OpenPlace = Callable[[str], "Backend | None"]


@pytest.fixture
def open_place(gpu: gx.PersistentVulkanBackend) -> OpenPlace:
    """The backend of a place; None for the host."""
    return lambda name: {"host": None, "cpu": gx.CpuBackend(), "vulkan": gpu}[name]
