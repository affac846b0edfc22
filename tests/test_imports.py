"""Imports run one way: a room imports from itself and from the floors below it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpu_executor

PACKAGE = "gpu_executor"
ROOT = Path(gpu_executor.__file__).parent

# Bottom first. Rooms on one floor do not import each other.
FLOORS: list[set[str]] = [
    {"errors", "version", "files", "lru"},  # import nothing of the package
    # Plain data; of telemetry the records that hot code appends (exporters belong at the top).
    {"settings", "device_info", "device_array", "calibration", "recycling", "telemetry"},
    {"forking"},  # what was opened is not used in a child
    {"spirv", "wgsl"},  # the languages of kernels, without a device
    {"primes"},  # a prime in, every constant out
    {"kernel"},  # what runs in one dispatch
    {"kernels"},  # those that come with the package
    {"call", "dispatch"},  # a kernel and the arrays it fits, the host's and the card's
    {"forms"},  # what the check of a call said, remembered
    {"plan"},  # how a call will be run
    {"backend"},  # what a backend is; names them in strings only
    {"vulkan", "cpu", "webgpu"},  # the backends
    {"ops"},  # what takes several dispatches
    {"fields"},  # the mathematics that users meet
    {"graphs", "executor"},  # what is done to arrays, recorded; kernels on any device
    {"cluster"},  # several machines
    {"metrics"},  # reads what all of them count
    {"bench", "soak"},  # measure them, wear them down
    {"cli"},  # shows everything
]
BACKENDS = {"vulkan", "cpu", "webgpu"}
LEVELS = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted(ROOT.rglob("*.py"))
    if path != ROOT / "__init__.py"  # the front door opens to every room
}


def rooms_imported(module: str, source: str) -> Iterator[tuple[int, str]]:
    """The line and the room of every import of this package in a module's source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = f"{PACKAGE}.{module}".split(".")[: -node.level]
                base = ".".join([*here, *filter(None, [base])])
            names = [f"{base}.{alias.name}" if base == PACKAGE else base for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == PACKAGE:
                yield node.lineno, name.partition(".")[2].split(".")[0]


def upward(module: str, source: str) -> list[str]:
    """What a module imports that it must not, in words."""
    own = module.split(".", maxsplit=1)[0]
    return [
        f"{module}, line {line}: {own} imports {room or PACKAGE!r}"
        for line, room in rooms_imported(module, source)
        if room != own and LEVELS.get(room, len(FLOORS)) >= LEVELS[own]
    ]


def test_every_module_has_a_floor() -> None:
    assert {module.split(".")[0] for module in MODULES} <= set(LEVELS)


@pytest.mark.parametrize("module", MODULES)
def test_no_import_runs_upward(module: str) -> None:
    assert upward(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize("module", [name for name in MODULES if name.split(".")[0] in BACKENDS])
def test_backends_do_not_import_each_other(module: str) -> None:
    imported = {room for _, room in rooms_imported(module, MODULES[module].read_text())}
    assert imported & BACKENDS <= {module.split(".", maxsplit=1)[0]}


@pytest.mark.parametrize(
    "line",
    [
        "import gpu_executor",
        "import gpu_executor.vulkan.device",
        "from gpu_executor import bench, errors",
        "from gpu_executor import CpuBackend",
        "from gpu_executor.cpu.backend import CpuBackend",
        "from . import backend",
        "from .cli import main",
        "def late() -> None:\n    from gpu_executor.vulkan import device",
    ],
)
def test_an_upward_import_would_be_found(line: str) -> None:
    assert len(upward("plan", line)) == 1


def test_an_import_from_a_room_on_the_same_floor_would_be_found() -> None:
    source = "from ..cpu.backend import CpuBackend\nfrom .device import Device\nimport numpy"
    assert upward("vulkan.session", source) == ["vulkan.session, line 1: vulkan imports 'cpu'"]


@pytest.mark.parametrize("unwanted", ["vulkan", "click", "rich"])
def test_importing_the_package_loads_no_driver_and_no_command_line(unwanted: str) -> None:
    program = f"import gpu_executor, sys; print({unwanted!r} in sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "False"
