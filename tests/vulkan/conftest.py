"""Compiled shaders, kept from one test run to the next."""

from __future__ import annotations

import pytest

from tests.conftest import ValidationMessages
from tests.support.glsl import keep_compiled_shaders


@pytest.fixture(scope="session", autouse=True)
def compiled_shaders(validation_messages: ValidationMessages) -> None:
    """Shaders that an earlier test run compiled. `validation_messages` sets the cache folder."""
    keep_compiled_shaders()
