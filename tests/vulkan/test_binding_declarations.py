"""The declarations of the Vulkan binding: the same constants as the `vulkan` package has."""

from __future__ import annotations

import re
from pathlib import Path

import gpu_executor
from gpu_executor.vulkan import binding
from tests.conftest import RunPython

NAMED = re.compile(r"\bvk\.(VK_\w+)")
WITHOUT_DECLARATIONS = """
import importlib.util, sys
find = importlib.util.spec_from_file_location
importlib.util.spec_from_file_location = lambda name, path: find(name, path + {suffix!r})
{first}
import numpy as np
import gpu_executor as gx
with gx.GpuExecutor("vulkan") as gpu:
    a = np.arange(5, dtype=np.uint32)
    print(gpu.run(gx.kernels.load("vector_add_u32"), a, a), "vulkan" in sys.modules)
"""


def test_every_constant_in_use_is_that_of_the_package() -> None:
    import vulkan

    sources = Path(gpu_executor.__file__).parent.rglob("*.py")
    names = {name for path in sources for name in NAMED.findall(path.read_text())}
    assert len(names) > 30
    for name in names:
        assert getattr(binding.vk, name) == getattr(vulkan, name) is not None


def test_a_constant_that_is_no_enumerator_is_that_of_the_package() -> None:
    assert binding.vk.VK_KHR_SWAPCHAIN_EXTENSION_NAME == "VK_KHR_swapchain"


def test_the_package_is_used_where_its_declarations_are_not_found_or_it_is_imported(
    run_python: RunPython,
) -> None:
    for suffix, first in ((".missing.py", ""), ("", "import vulkan")):
        ran = run_python(WITHOUT_DECLARATIONS.format(suffix=suffix, first=first))
        assert ran.stdout == "[0 2 4 6 8] True\n", ran.stderr
