"""Imports run downward only: a room (a package or a module) imports from itself and from lower
floors."""

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
    # Plain data; of telemetry what hot code records.
    {"settings", "device_info", "device_array", "calibration", "result_memory", "telemetry"},
    {"fork"},  # what was opened is not used in a child
    {"spirv", "wgsl"},  # the languages of kernels, without a device
    {"primes"},  # a prime in, every constant out
    {"kernel"},  # what runs in one dispatch
    {"kernels"},  # those that come with the package
    {"call", "dispatch"},  # a kernel and the arrays it fits; dispatches on device arrays
    {"plan"},  # how a call will be run
    {"backend"},  # what a backend is; names them in strings only
    {"vulkan", "cpu", "webgpu"},  # the backends
    {"ops"},  # what takes several dispatches
    {"fields"},  # the mathematics that users meet
    {"graphs", "executor"},  # what is done to arrays, recorded; kernels on any device
    {"cluster"},  # several machines
    {"telemetry.exporters"},  # write what all of them record; lower rooms reach them by name
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


def room_of(name: str) -> str:
    """The room of a module, by its name without the package: a subpackage with a floor of its own,
    or else the first part of the name."""
    first, _, rest = name.partition(".")
    inner = f"{first}.{rest.partition('.')[0]}"
    return inner if inner in LEVELS else first


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
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == PACKAGE:
                yield node.lineno, room_of(name.partition(".")[2])


def upward(module: str, source: str) -> list[str]:
    """What a module imports that it must not, in words."""
    own = room_of(module)
    return [
        f"{module}, line {line}: {own} imports {room or PACKAGE!r}"
        for line, room in rooms_imported(module, source)
        if room != own and LEVELS.get(room, len(FLOORS)) >= LEVELS[own]
    ]


def test_every_module_has_a_floor() -> None:
    assert {room_of(module) for module in MODULES} <= set(LEVELS)


def test_no_import_runs_upward() -> None:
    found = [line for module, path in MODULES.items() for line in upward(module, path.read_text())]
    assert not found, "imports that run upward:\n" + "\n".join(found)


def test_backends_do_not_import_each_other() -> None:
    found = [
        f"{module}, line {line}: {own} imports {room!r}"
        for module, path in MODULES.items()
        if (own := room_of(module)) in BACKENDS
        for line, room in rooms_imported(module, path.read_text())
        if room in BACKENDS - {own}
    ]
    assert not found, "imports between backends:\n" + "\n".join(found)


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


@pytest.mark.parametrize(
    "line",
    [
        "from gpu_executor.telemetry import exporters",
        "from gpu_executor.telemetry.exporters import prometheus",
        "import gpu_executor.telemetry.exporters.trace_file",
        "from .exporters.trace_file import save_trace",
    ],
)
def test_an_import_of_an_exporter_would_be_found(line: str) -> None:
    assert upward("telemetry.stages", line) == [
        "telemetry.stages, line 1: telemetry imports 'telemetry.exporters'"
    ]


def loaded_by(statement: str) -> set[str]:
    """Modules that are loaded, beyond NumPy's own, by `import gpu_executor as gx` and a statement
    in an interpreter of its own."""
    program = (
        "import sys, numpy\n"
        "before = set(sys.modules)\n"
        f"import gpu_executor as gx\n{statement}\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return set(done.stdout.split())


HEAVY = {"vulkan", "cffi", "_cffi_backend", "wgpu", "ray", "click", "rich", "prometheus_client"}
HEAVY |= {
    "opentelemetry",
    "jinja2",
    "asyncio",
    "ssl",
    "multiprocessing",
    "numpy.ma",
    "platformdirs",
}
HEAVY |= {f"{PACKAGE}.{room}" for room in ("bench", "soak", "cli")}
ARITHMETIC = """
field = gx.fields.BLS12_381_FR
array = field.encode([3, 5])
assert field.decode(array * array - 10).tolist() == [field.modulus - 1, 15]
"""


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        # Beside each limit what was loaded with CPython 3.11, whose import of the package loaded
        # 294 modules when every public name was imported with it. Other releases differ by a few.
        pytest.param("", 5, id="import"),  # 2
        pytest.param(ARITHMETIC, 130, id="field"),  # 101
        pytest.param("gx.GpuExecutor", 220, id="executor"),  # 188
    ],
)
def test_importing_loads_few_modules_no_driver_and_no_command_line(
    statement: str, most: int
) -> None:
    loaded = loaded_by(statement)
    unwanted = [
        name
        for name in sorted(loaded)
        if any(name == heavy or name.startswith(f"{heavy}.") for heavy in HEAVY)
    ]
    assert not unwanted, f"loaded without need: {unwanted}"
    assert len(loaded) <= most, f"{len(loaded)} modules beyond NumPy's: {sorted(loaded)}"


def test_every_public_name_is_there_after_the_import_alone() -> None:
    loaded = loaded_by(
        "assert set(dir(gx)) == set(gx.__all__)\n"
        "assert callable(gx.kernels.load) and gx.fields.BLS12_381_FR and gx.errors.GpuError\n"
        "assert gx.settings.Settings is gx.Settings\n"  # submodules are attributes, too
        "assert not hasattr(gx, 'nothing_of_that_name')\n"
        "from gpu_executor import *\n"
        "assert all(globals()[name] is getattr(gx, name) for name in gx.__all__)\n"
        "import pickle\n"
        "assert pickle.loads(pickle.dumps([gx.GpuExecutor, gx.devices])) == "
        "[GpuExecutor, devices]\n"
    )
    assert not loaded & {"vulkan", "wgpu", "ray"}
