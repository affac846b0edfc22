"""Code above the backends uses their interface, and never asks which backend it has. Algorithms do
not ask which device they run on."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpu_executor
from gpu_executor.backend import Backend, BackendStats
from gpu_executor.calls.dispatch import ArrayDevice
from tests.support.statements import list_imports

ROOT = Path(gpu_executor.__file__).parent
BACKENDS = ("vulkan", "cpu", "webgpu")
ALGORITHMS = ("ops", "msm", "fields", "curves", "kzg", "groth16")
ABOVE = (*ALGORITHMS, "executor", "cluster", "telemetry", "bench", "soak", "report", "cli")
PROBES = ("isinstance", "issubclass", "getattr", "hasattr")
COMMON = {"name"}
"""Attributes of backends and devices that many other objects have."""


def list_subclasses(base: type[Any]) -> Iterator[str]:
    for each in base.__subclasses__():
        yield each.__name__
        yield from list_subclasses(each)


@functools.cache
def list_device_classes() -> frozenset[str]:
    """The classes of device memory and of storages: those whose arrays an algorithm gets."""
    return frozenset(
        node.name
        for package in BACKENDS
        for path in (ROOT / package).glob("device_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )


def list_names(node: ast.AST) -> set[str]:
    """The names inside of an expression, also those behind a dot."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def find_probes(source: str) -> list[str]:
    """The expressions that ask an object whether it is of the class of a backend, a device or a
    storage, or has a method of one."""
    classes = {*list_subclasses(Backend), *list_subclasses(BackendStats), "Profile"}
    classes |= list_device_classes()
    own = {*vars(Backend), *vars(ArrayDevice)} - COMMON
    methods = {name for name in own if not name.startswith("_")}
    found = []
    for node in ast.walk(ast.parse(source)):
        is_match = False
        if isinstance(node, ast.MatchClass):
            is_match = bool(list_names(node.cls) & classes)
        elif isinstance(node, ast.Compare):  # type(storage) is ..., device.__class__ == ...
            is_match = bool(list_names(node) & classes)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in PROBES:
            texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            is_match = bool(list_names(node) & classes or texts & methods)
        if is_match:
            found.append(ast.unparse(node))
    return found


def list_modules(packages: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The path of every module of the packages, and its source."""
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            yield name, path.read_text()


def test_nothing_above_the_backends_probes_them() -> None:
    # All backends are imported, so that their classes are known.
    for name in gpu_executor.__all__:
        getattr(gpu_executor, name)
    found = [
        f"{name}: {probe}" for name, source in list_modules(ABOVE) for probe in find_probes(source)
    ]
    assert found == []


def test_algorithms_import_no_backend() -> None:
    found = [
        f"{name}, line {line}: {imported}"
        for name, source in list_modules(ALGORITHMS)
        for line, imported in list_imports(f"gpu_executor.{name[:-3].replace('/', '.')}", source)
        if imported.startswith(tuple(f"gpu_executor.{backend}." for backend in BACKENDS))
    ]
    assert found == []


def test_the_classes_of_devices_are_known() -> None:
    assert {"CpuMemory", "CpuStorage", "DeviceMemory", "VulkanStorage"} <= list_device_classes()


@pytest.mark.parametrize(
    "line",
    [
        'getattr(backend, "explain", None)',
        'hasattr(device.backend, "trim")',
        "isinstance(backend, PersistentVulkanBackend)",
        "isinstance(stats, Stats | WgpuStats)",
        "match stats:\n    case CpuStats():\n        pass",
        "isinstance(device, CpuMemory)",
        "isinstance(data.storage, device_storage.VulkanStorage)",
        "type(storage) is CpuStorage",
        "storage.__class__ != VulkanStorage",
        "type(device) in (CpuMemory, DeviceMemory)",
        "match device:\n    case device_memory.CpuMemory():\n        pass",
        'hasattr(device, "array_device")',
        'getattr(device, "runs_kernels", False)',
    ],
)
def test_a_probe_would_be_found(line: str) -> None:
    assert find_probes(line)
