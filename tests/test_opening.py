"""Opening an executor in a new process: what it imports and prints, and how often it loads the
drivers."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import gpu_executor as gx
from gpu_executor.errors import VulkanError
from gpu_executor.vulkan import instance
from gpu_executor.vulkan.binding import count_live_objects, vk
from tests.conftest import RunPython
from tests.support.vulkan_faults import Fail, fail

__all__ = ["fail"]  # a fixture

OPEN_AND_CALL = """
import json, sys
import numpy as np
import gpu_executor as gx
with gx.GpuExecutor({options}) as gpu:
    a = np.arange(1000, dtype=np.uint32)
    kernel = gx.kernels.load("vector_add_u32")
    result = gpu.run(kernel, a, a)
    assert (gpu.submit(kernel, a, a).result() == result).all()
    loaded = sorted(sys.modules)
    backend = gpu.stats().devices[0].backend
print(json.dumps([backend, result.tolist() == (2 * a).tolist(), loaded]))
"""
NOT_NEEDED = {"wgpu", "ray", "click", "rich", "jinja2", "prometheus_client", "opentelemetry"}
NOT_NEEDED |= {"vulkan", "cffi", "platformdirs", "typing_extensions", "pkg_resources"}
NOT_NEEDED |= {"asyncio", "multiprocessing", "ssl", "subprocess", "shutil", "tempfile", "zipfile"}
NOT_NEEDED |= {"concurrent.futures.thread", "importlib.resources", "statistics", "tokenize"}
NOT_NEEDED |= {"numpy.random", "numpy.ma", "numpy.fft", "numpy.polynomial"}
NOT_NEEDED |= {f"gpu_executor.{name}" for name in ("webgpu", "cpu.backend", "cluster", "curves")}
NOT_NEEDED |= {f"gpu_executor.{name}" for name in ("fields", "ops", "kzg", "bench", "cli")}
LEAN = "gpu_executor.common.lean_dataclass"
STANDARD = re.compile(r"^from dataclasses import .*\bdataclass\b|^@dataclasses\.", re.MULTILINE)
NUMPY = "import sys, json, numpy; print(json.dumps(sorted(sys.modules)))"


@pytest.mark.parametrize("options", ["", "'vulkan'"])
def test_opening_on_vulkan_imports_what_a_call_needs_and_prints_nothing(
    run_python: RunPython, monkeypatch: pytest.MonkeyPatch, options: str
) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    ran = run_python(OPEN_AND_CALL.format(options=options), GPU_VALIDATION="0")
    assert ran.stderr == ""
    backend, right, loaded = json.loads(ran.stdout)
    assert (backend, right) == ("vulkan", True)
    own = set(loaded) - set(json.loads(run_python(NUMPY).stdout))
    unneeded = sorted(
        name for name in own if any(f"{name}.".startswith(f"{each}.") for each in NOT_NEEDED)
    )
    assert not unneeded, f"imported without need: {unneeded}"
    sources = {
        name: find_spec(name) for name in own if name.startswith("gpu_executor.") and name != LEAN
    }
    slow = [
        name
        for name, spec in sources.items()
        if spec is not None and STANDARD.search(Path(str(spec.origin)).read_text())
    ]
    assert not slow, f"modules that should import dataclass from lean_dataclass: {slow}"


def test_webgpu_prints_nothing_without_a_wayland_compositor(
    run_python: RunPython, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_RUNTIME_DIR", "NODEVICE_SELECT", "MESA_VK_DEVICE_SELECT"):
        monkeypatch.delenv(name, raising=False)
    script = OPEN_AND_CALL.format(options="'webgpu'")
    ran = run_python(f"{script}\nimport os\nassert 'NODEVICE_SELECT' not in os.environ")
    assert ran.returncode == 0
    assert ran.stderr == ""
    assert json.loads(ran.stdout)[:2] == ["webgpu", True]


# --- one instance ---


@pytest.fixture
def created(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A growing list with an entry for each instance that is created."""
    calls: list[str] = []
    create = vk.vkCreateInstance

    def counted(*arguments: object) -> object:
        calls.append("vkCreateInstance")
        return create(*arguments)

    monkeypatch.setattr(vk, "vkCreateInstance", counted)
    return calls


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("backend", ["auto", "vulkan"])
def test_opening_an_executor_creates_one_instance(
    created: list[str], backend: str, validation: bool
) -> None:
    settings = dataclasses.replace(gx.Settings.from_environment(), validation=validation)
    before = count_live_objects()
    with gx.GpuExecutor(backend, settings=settings) as executor:  # type: ignore[arg-type]
        assert len(created) == 1
        a = np.arange(5, dtype=np.uint32)
        np.testing.assert_array_equal(
            executor.run(gx.kernels.load("vector_add_u32"), a, a), np.arange(0, 10, 2)
        )
    assert count_live_objects() == before
    gx.devices()
    assert len(created) == 2, "outside of an executor, an instance is not kept"
    assert count_live_objects() == before


def test_devices_of_one_executor_have_instances_of_their_own(created: list[str]) -> None:
    before = count_live_objects()
    with gx.GpuExecutor("vulkan", devices=[0, 0]) as executor:
        assert len(executor.stats().devices) == 2
        assert len(created) == 2
    assert count_live_objects() == before


def test_an_instance_that_no_device_takes_is_closed(created: list[str], fail: Fail) -> None:
    before = count_live_objects()
    with gx.GpuExecutor("cpu"):
        assert not created
    with pytest.raises(gx.errors.DeviceNotFoundError):
        gx.GpuExecutor("vulkan", "no such device")
    assert len(created) == 1
    assert count_live_objects() == before
    fail("vkCreateDevice", -3)
    with pytest.raises(VulkanError):
        gx.GpuExecutor("vulkan")
    assert count_live_objects() == before


def test_an_instance_is_not_shared_if_it_lacks_the_validation_layer() -> None:
    with instance.share_instance(validation=False):
        gx.devices()
        opened = instance.open_instance(validation=True)
        assert opened.validation
        opened.close()
    assert instance._shared.instance is None
