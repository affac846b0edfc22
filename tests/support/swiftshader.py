"""SwiftShader: a second software driver of Vulkan, without 64-bit types and with subgroups of four.

Chromium brings it, which the tests of the report page install. The loader of Vulkan reads
`VK_DRIVER_FILES` whenever an instance is made, so devices of both drivers may be open at a time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpu_executor as gx

FOLDERS = ("/usr/lib/chromium", "/usr/lib/chromium-browser", "/opt/google/chrome")
MANIFEST = "vk_swiftshader_icd.json"
MISSING = (
    f"the tests on SwiftShader need {MANIFEST} of Chromium in one of {', '.join(FOLDERS)}: "
    "`tools/system-parts develop` installs it, or `apt-get install chromium`"
)


def find_swiftshader() -> str:
    """The path of the driver's manifest. A machine without one fails the tests that need it."""
    for folder in FOLDERS:
        if (Path(folder) / MANIFEST).exists():
            return str(Path(folder) / MANIFEST)
    raise RuntimeError(MISSING)


@contextlib.contextmanager
def use_swiftshader() -> Iterator[None]:
    """Devices that are listed or opened meanwhile are those of SwiftShader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VK_DRIVER_FILES", find_swiftshader())
        yield


@contextlib.contextmanager
def open_swiftshader(
    settings: gx.Settings | None = None,
) -> Iterator[gx.PersistentVulkanBackend]:
    """Open SwiftShader's device."""
    with use_swiftshader():
        backend = gx.PersistentVulkanBackend(settings=settings)
    with backend:
        assert "SwiftShader" in backend.device.name
        yield backend
