"""What brings the Vulkan loader, a driver and the tools of developers on each operating system."""

from __future__ import annotations

import sys
from typing import Literal

Part = Literal["loader", "driver", "validation layer", "glslc", "spirv-val"]

VENDOR_DRIVER = "the driver of your GPU's vendor (AMD, Intel, NVIDIA), which brings vulkan-1.dll"
VULKAN_SDK = "the Vulkan SDK"
INSTALLATION: dict[str, dict[Part, str]] = {
    "linux": {
        "loader": "apt-get install libvulkan1 mesa-vulkan-drivers (Debian, Ubuntu), dnf install "
        "vulkan-loader mesa-vulkan-drivers (Fedora) or your system's Vulkan loader package",
        "driver": "apt-get install mesa-vulkan-drivers (it includes lavapipe, a software driver) "
        "or your GPU vendor's package",
        "validation layer": "apt-get install vulkan-validationlayers",
        "glslc": "apt-get install glslc",
        "spirv-val": "apt-get install spirv-tools",
    },
    "darwin": {
        "loader": f"brew install molten-vk vulkan-loader, or {VULKAN_SDK}",
        "driver": f"brew install molten-vk (MoltenVK, which runs on Metal), or {VULKAN_SDK}",
        "validation layer": f"brew install vulkan-validationlayers, or {VULKAN_SDK}",
        "glslc": f"brew install shaderc, or {VULKAN_SDK}",
        "spirv-val": f"brew install spirv-tools, or {VULKAN_SDK}",
    },
    "win32": {
        "loader": VENDOR_DRIVER,
        "driver": VENDOR_DRIVER,
        "validation layer": VULKAN_SDK,
        "glslc": VULKAN_SDK,
        "spirv-val": VULKAN_SDK,
    },
}
"""For each value of `sys.platform`, the command or the package that installs a part."""


def describe_installation(part: Part) -> str:
    """Say what installs a part on this system; on one that is not listed, what does on Linux."""
    return INSTALLATION.get(sys.platform, INSTALLATION["linux"])[part]
