"""Compiled shaders, kept from one test run to the next, and another driver."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import gpu_executor as gx
from tests.conftest import ValidationMessages
from tests.support.glsl import keep_compiled_shaders
from tests.support.swiftshader import open_swiftshader


@pytest.fixture(scope="session", autouse=True)
def compiled_shaders(validation_messages: ValidationMessages) -> None:
    """Shaders that an earlier test run compiled. `validation_messages` sets the cache folder."""
    keep_compiled_shaders()


@pytest.fixture(scope="module")
def swiftshader(gpu: gx.PersistentVulkanBackend) -> Iterator[gx.PersistentVulkanBackend]:
    """SwiftShader, while the other driver is open too."""
    with open_swiftshader() as opened:
        assert "shaderInt64" not in opened.device.features
        yield opened
