"""Fixtures of the tests of fields."""

from __future__ import annotations

import pytest

import gpu_executor as gx
from gpu_executor.common.lru import LruCache
from tests.support.device_arrays import get_device_memory


@pytest.fixture
def gpu_without_tables(
    gpu: gx.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> gx.PersistentVulkanBackend:
    """A backend with an empty cache of tables, so that passes are made as the test sets them."""
    monkeypatch.setattr(get_device_memory(gpu), "_cache", LruCache())
    return gpu
