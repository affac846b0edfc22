"""macOS and Windows, as far as Linux can simulate them. Nothing here has run on those systems."""

from __future__ import annotations

import ast
import ctypes
import dataclasses
import json
import os
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gpu_executor
from gpu_executor.common import system_packages
from gpu_executor.common.main_memory import MemoryStatus, read_main_memory
from gpu_executor.common.system_packages import INSTALLATION, describe_installation
from gpu_executor.cpu.device_memory import describe_host
from gpu_executor.errors import GpuError
from gpu_executor.kernel.glsl import compile_glsl
from gpu_executor.kzg import setup_file
from gpu_executor.soak import memory
from gpu_executor.vulkan import binding
from gpu_executor.vulkan.disk_cache import calibration_path, pipeline_folder
from gpu_executor.vulkan.profile import measure_clock_offset_ns
from gpu_executor.webgpu.boundaries import history_path
from tests.conftest import RunPython
from tests.support.other_systems import MISSING, simulate

SOURCES = sorted(Path(gpu_executor.__file__).parent.rglob("*.py"))
LOADER = binding.LOADER_NAMES["linux"][0]

# --- modules that only Linux has ---

IMPORT_EVERYTHING = """
for name in names:
    importlib.import_module(name)
import numpy as np
import gpu_executor as gx
from gpu_executor.cli.doctor import examine
x = np.arange(5, dtype=np.uint32)
kernel = gx.kernels.load("vector_add_u32")
with gx.GpuExecutor("cpu") as gpu:
    print(len(names), gpu.run(kernel, x, x).tolist(), gx.Settings.from_environment().cache_dir.name)
try:
    gx.devices()
except gx.errors.LoaderNotFoundError as error:
    print(error)
found = {finding.subject: finding for finding in examine()}
for subject in ("Vulkan loader", "validation layer", "WebGPU"):
    print(found[subject].works, found[subject].details)
"""


ON_EACH_SYSTEM = """
import importlib, os, pkgutil
import gpu_executor
for found in pkgutil.walk_packages(gpu_executor.__path__, "gpu_executor."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)  # as on Linux, once for all systems
fork, waitpid = os.fork, os.waitpid
for script in {scripts!r}:
    child = fork()
    if child == 0:
        exec(script)
        print("{end}", flush=True)
        os._exit(0)
    assert waitpid(child, 0)[1] == 0
"""


def test_every_module_is_imported_and_the_missing_loader_is_one_error_in_words(
    run_python: RunPython, tmp_path: Path
) -> None:
    systems = sorted(MISSING)
    scripts = [simulate(system, everything=True) + IMPORT_EVERYTHING for system in systems]
    script = ON_EACH_SYSTEM.format(scripts=scripts, end="the end")
    ran = run_python(script, GPU_CACHE_DIR=str(tmp_path / "folder"), PATH="", VULKAN_SDK=None)
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.split("the end\n")
    assert said.pop() == ""
    for system, shown in zip(systems, said, strict=True):
        check_missing_loader(system, shown)


def check_missing_loader(system: str, shown: str) -> None:
    called, error, loader, layer, webgpu, *_ = shown.splitlines()
    count, *rest = called.split(" ", 1)
    assert int(count) == len([path for path in SOURCES if path.stem != "__main__"]) - 1
    assert rest == ["[0, 2, 4, 6, 8] folder"]
    assert error.startswith("no Vulkan loader: ")
    assert error.endswith(f"To install it: {INSTALLATION[system]['loader']}")
    assert "apt-get" not in error
    assert loader == f"False {error}"
    # wgpu-py looks for the library of that system, which is not there.
    assert webgpu.startswith("False needed only without Vulkan: wgpu-py does not list adapters: ")
    assert layer == f"False {INSTALLATION[system]['validation layer']}"


def test_windows_says_its_main_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(reference: Any) -> int:
        status = reference._obj
        assert (status.length, MemoryStatus.total.offset) == (64, 8)
        status.total = 34 << 30
        return 1

    kernel32 = SimpleNamespace(GlobalMemoryStatusEx=fill)
    monkeypatch.delattr(os, "sysconf")
    assert read_main_memory() is None
    assert describe_host().device_memory == 4 << 30
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    assert read_main_memory() == describe_host().device_memory == 34 << 30


def test_every_system_says_what_installs_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*INSTALLATION} == {*binding.LOADER_NAMES} == {"linux", *MISSING}
    for system, parts in INSTALLATION.items():
        monkeypatch.setattr(sys, "platform", system)
        assert {*parts} == {*system_packages.Part.__args__}  # type: ignore[attr-defined]
        assert all(describe_installation(part) == text for part, text in parts.items())
    monkeypatch.setattr(sys, "platform", "freebsd14")
    assert "libvulkan1" in describe_installation("loader")


def test_text_files_have_an_encoding() -> None:
    """Windows would read and write them as code page 1252."""
    without = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        if not re.search(r"read_text|write_text|\bopen\(", text):
            continue
        for call in ast.walk(ast.parse(text)):
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            given = {arg.value for arg in call.args if isinstance(arg, ast.Constant)}
            modes = {word for word in given if re.fullmatch(r"[rwax+bt]+", str(word))}
            is_text = name in ("read_text", "write_text")
            if name == "open" and (modes or isinstance(call.func, ast.Name)):
                is_text = not any("b" in str(mode) for mode in modes)
            if is_text and "encoding" not in {keyword.arg for keyword in call.keywords}:
                without.append(f"{path}:{call.lineno}")
    assert not without


def test_a_soak_run_says_that_it_needs_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    memory.check_memory_is_reported()
    monkeypatch.setattr(memory, "SMAPS", Path("/no/such/file"))
    with pytest.raises(GpuError, match=r"reads the memory .* from .*file, which is not on .*Linux"):
        memory.check_memory_is_reported()


def test_clocks_are_related_on_linux_only(
    gpu: gpu_executor.PersistentVulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = gpu._session._device
    assert measure_clock_offset_ns(device) != 0
    monkeypatch.setattr(sys, "platform", "win32")
    assert measure_clock_offset_ns(device) == 0


def test_names_of_cache_files_are_portable(
    gpu: gpu_executor.PersistentVulkanBackend, tmp_path: Path
) -> None:
    """Characters that every file system has, and no two names that differ in case alone."""
    info = dataclasses.replace(gpu.device, driver='a:b/c\\d*?"<>|', uuid="CON")
    names = [
        path(tmp_path, info).relative_to(tmp_path) for path in (pipeline_folder, calibration_path)
    ]
    names += [
        history_path(Path(), "GPU: a/b"),
        setup_file._get_path(Path(), "lagrange", 64 * "a"),
        *(path.relative_to(tmp_path) for path in compile_into(tmp_path)),
    ]
    assert len(names) == 5
    for name in names:
        assert all(re.fullmatch(r"[a-z0-9]+[a-z0-9.-]*[a-z0-9]", part) for part in name.parts)


def compile_into(folder: Path) -> list[Path]:
    text = "#version 450\nlayout(local_size_x = 1) in;\nvoid main() { uint unique_here; }\n"
    compile_glsl(text, cache_dir=folder)
    return [path for path in folder.rglob("*") if path.is_file()]


# --- the loader ---


def test_loaders_are_looked_for_by_the_names_of_each_system() -> None:
    sdk = {"VULKAN_SDK": "/sdk/macOS"}
    assert binding.list_loader_paths("linux", sdk) == ["libvulkan.so.1"]
    assert binding.list_loader_paths("freebsd14", {}) == ["libvulkan.so.1"]
    assert binding.list_loader_paths("win32", sdk) == ["vulkan-1.dll"]
    names = "libvulkan.dylib", "libvulkan.1.dylib", "libMoltenVK.dylib"
    folders = "", "/opt/homebrew/lib/", "/usr/local/lib/"
    assert binding.list_loader_paths("darwin", {"VULKAN_SDK": ""}) == [
        f"{folder}{name}" for name in names for folder in folders
    ]
    assert binding.list_loader_paths("darwin", sdk) == [
        f"{folder}{name}"
        for name in names
        for folder in ("", "/sdk/macOS/lib/", "/opt/homebrew/lib/", "/usr/local/lib/")
    ]


RUN_ON_VULKAN = """
import numpy as np
import gpu_executor as gx
from gpu_executor.vulkan.binding import vk
x = np.arange(5, dtype=np.uint32)
try:
    with gx.GpuExecutor("vulkan") as gpu:
        print(gpu.run(gx.kernels.load("vector_add_u32"), x, x).tolist())
        try:
            vk.load_extension(vk.ffi.NULL, "vkCreateDevice")
        except gx.errors.VulkanError as error:
            print(error, "vulkan" in sys.modules)
except gx.GpuError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("system", "name"), [("darwin", "libMoltenVK.dylib"), ("win32", "vulkan-1.dll")]
)
def test_a_call_runs_with_the_library_of_the_system(
    run_python: RunPython, tmp_path: Path, system: str, name: str
) -> None:
    """With the loader of Linux under that name, in the SDK or where the system looks. Errors have
    names without the `vulkan` package, which would not find the library of an SDK."""
    libraries, cache = tmp_path / "lib", tmp_path / "cache"
    libraries.mkdir()
    (libraries / name).symlink_to(find_library(LOADER))
    where = {"VULKAN_SDK": str(tmp_path)}
    if system == "win32":
        where = {"LD_LIBRARY_PATH": str(libraries)}
    ran = run_python(simulate(system) + RUN_ON_VULKAN, GPU_CACHE_DIR=str(cache), **where)
    assert ran.returncode == 0, ran.stderr
    result, error = ran.stdout.splitlines()
    assert result == "[0, 2, 4, 6, 8]"
    assert error == "vkCreateDevice failed: VK_ERROR_EXTENSION_NOT_PRESENT (-7) False"


def test_a_library_that_cannot_be_loaded_is_named(run_python: RunPython, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    wrong = tmp_path / "lib" / "libvulkan.dylib"
    wrong.write_bytes(b"of another processor")
    ran = run_python(simulate("darwin") + RUN_ON_VULKAN, VULKAN_SDK=str(tmp_path))
    found = f"LoaderNotFoundError no Vulkan loader: what was found cannot be loaded .*{wrong}.*brew"
    assert re.match(found, ran.stdout), ran.stdout + ran.stderr


def find_library(name: str) -> str:
    """The path of a library that this process has loaded."""
    binding.load_library()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return next(line.split()[-1] for line in maps if Path(line.split()[-1]).name.startswith(name))


# --- drivers of a subset of Vulkan ---

LIST_DEVICES = """
import gpu_executor as gx
print([device.kind for device in gx.devices()])
"""


def test_a_portability_driver_is_enumerated(run_python: RunPython, tmp_path: Path) -> None:
    """lavapipe, declared as the loader knows MoltenVK: it hides such drivers unless asked."""
    library = find_library("libvulkan_lvp.so")
    driver = {"library_path": library, "api_version": "1.3.0", "is_portability_driver": True}
    manifest = tmp_path / "driver.json"
    manifest.write_text(json.dumps({"file_format_version": "1.0.1", "ICD": driver}))
    only = {"VK_DRIVER_FILES": str(manifest), "VK_ICD_FILENAMES": str(manifest)}
    ran = run_python(LIST_DEVICES, **only)
    assert ran.stdout == "['cpu']\n", ran.stderr
