"""Code above the backends uses their interface, and never asks which backend it has."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gpu_executor
from gpu_executor.backend import Backend, BackendStats

ROOT = Path(gpu_executor.__file__).parent
ABOVE = ("executor", "cluster", "telemetry", "bench", "soak", "report", "cli")
PROBES = ("isinstance", "issubclass", "getattr", "hasattr")


def list_subclasses(base: type[Any]) -> Iterator[str]:
    for each in base.__subclasses__():
        yield each.__name__
        yield from list_subclasses(each)


def find_probes(source: str) -> list[str]:
    """The calls that ask an object whether it is of a backend's class or has a method of one."""
    classes = {*list_subclasses(Backend), *list_subclasses(BackendStats), "Profile"}
    methods = {name for name in vars(Backend) if not name.startswith("_")}
    found = []
    for node in ast.walk(ast.parse(source)):
        is_match = isinstance(node, ast.MatchClass) and ast.unparse(node.cls) in classes
        is_call = isinstance(node, ast.Call) and ast.unparse(node.func) in PROBES
        if is_call and isinstance(node, ast.Call):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            texts = {each.value for each in ast.walk(node) if isinstance(each, ast.Constant)}
            is_match = bool(names & classes or texts & methods)
        if is_match:
            found.append(ast.unparse(node))
    return found


def test_nothing_above_the_backends_probes_them() -> None:
    # All backends are imported, so that their classes are known.
    for name in gpu_executor.__all__:
        getattr(gpu_executor, name)
    found = [
        f"{path.relative_to(ROOT)}: {probe}"
        for package in ABOVE
        for path in sorted((ROOT / package).rglob("*.py"))
        for probe in find_probes(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        'getattr(backend, "explain", None)',
        'hasattr(device.backend, "trim")',
        "isinstance(backend, PersistentVulkanBackend)",
        "isinstance(stats, Stats | WgpuStats)",
        "match stats:\n    case CpuStats():\n        pass",
    ],
)
def test_a_probe_would_be_found(line: str) -> None:
    assert find_probes(line)
