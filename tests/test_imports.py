"""Imports run downward only: a package imports from itself and from the layers below its own. No
two modules of the package import each other, directly or through others. Every import statement
counts: also those under TYPE_CHECKING and inside functions. Test modules do not import each other.
`import gpu_executor` loads few modules."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import gpu_executor
from tests.support.statements import list_imports

PACKAGE = "gpu_executor"
ROOT = Path(gpu_executor.__file__).parent

# Bottom first. A package here is a subpackage, or a module directly under gpu_executor. Packages of
# one layer do not import each other.
LAYERS: list[set[str]] = [
    {"errors", "version"},  # these import nothing of gpu_executor
    {"common"},  # files, caches, fork handlers: no part in running kernels
    # Plain data; arrays and their memory; of telemetry, the events that hot code records.
    {"settings", "device_info", "arrays", "telemetry"},
    {"cuda"},  # the binding to CUDA's driver library
    {"device_profiles"},  # what is known of a vendor's GPUs
    {"spirv"},  # a reader of kernel code
    {"primes"},  # a prime in, every constant out
    {"kernel"},  # one dispatch
    {"kernels"},  # the catalogue of kernels
    {"calls"},  # checked calls; dispatches on device arrays
    {"graphs"},  # recorded operations
    {"plan"},  # decisions made before a call runs
    {"steps"},  # steps on device arrays, bound to memory
    {"backend"},  # the interface, which names the backends in strings only
    {"vulkan", "cpu", "webgpu"},  # the backends
    {"ops"},  # algorithms of several dispatches
    {"fields"},  # the mathematics that users meet
    {"hashes"},  # hash functions of bytes and of field elements
    {"merkle"},  # Merkle trees over these hash functions
    {"msm"},  # multi-scalar multiplication
    {"curves"},  # curves over these fields
    {"executor"},  # kernels on any device
    {"kzg"},  # commitments and proofs of blobs
    {"groth16"},  # proofs of circuits
    {"warm_up"},  # the pipelines of all these works, compiled ahead
    {"cluster"},  # several machines
    {"telemetry.exporters"},  # export events; lower layers import them by name
    {"bench", "soak"},  # benchmarks and load tests
    {"report", "compile_report"},  # results of benchmarks as a page; of AMD's compiler
    {"cli"},  # the command line
]
BACKENDS = {"vulkan", "cpu", "webgpu"}
LEVELS = {package: level for level, packages in enumerate(LAYERS) for package in packages}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for path in sorted(ROOT.rglob("*.py"))
    if path != ROOT / "__init__.py"  # imports every public name lazily
}


def get_package(name: str) -> str:
    """The package of a module, whose name is without `gpu_executor`: a subpackage that has a layer
    of its own, or else the first part of the name."""
    first, _, rest = name.partition(".")
    inner = f"{first}.{rest.partition('.')[0]}"
    return inner if inner in LEVELS else first


def list_imported_packages(module: str, source: str) -> Iterator[tuple[int, str]]:
    """The line and the package of every import from gpu_executor in a module's source."""
    for line, name in list_imports(f"{PACKAGE}.{module}", source):
        if name.split(".")[0] == PACKAGE:
            yield line, get_package(name.partition(".")[2])


def find_upward_imports(module: str, source: str) -> list[str]:
    """The imports of a module from its own layer or from layers above, in words."""
    own = get_package(module)
    return [
        f"{module}, line {line}: {own} imports {package or PACKAGE!r}"
        for line, package in list_imported_packages(module, source)
        if package != own and LEVELS.get(package, len(LAYERS)) >= LEVELS[own]
    ]


def test_every_package_has_a_layer() -> None:
    assert {get_package(module) for module in MODULES} <= set(LEVELS)


def test_no_import_runs_upward() -> None:
    found = [
        line
        for module, path in MODULES.items()
        for line in find_upward_imports(module, path.read_text())
    ]
    assert not found, "imports that run upward:\n" + "\n".join(found)


def test_the_documented_packages_are_those_of_the_layers() -> None:
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    table = text.partition("\n## Packages\n")[2].partition("\n\n| to find |")[0]
    rows = [
        re.findall(r"`([\w.]+)`", line.split("|")[1])
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    levels = [sorted(LEVELS[name] for name in row) for row in rows]
    assert sorted(name for row in rows for name in row) == sorted(LEVELS)
    for (*_, above), (below, *_) in itertools.pairwise(levels):
        assert above <= below, "a package stands above one that it may import"


def test_backends_do_not_import_each_other() -> None:
    found = [
        f"{module}, line {line}: {own} imports {package!r}"
        for module, path in MODULES.items()
        if (own := get_package(module)) in BACKENDS
        for line, package in list_imported_packages(module, path.read_text())
        if package in BACKENDS - {own}
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
    assert len(find_upward_imports("plan", line)) == 1


def test_an_import_from_the_same_layer_would_be_found() -> None:
    source = "from ..cpu.backend import CpuBackend\nfrom .device import Device\nimport numpy"
    assert find_upward_imports("vulkan.session", source) == [
        "vulkan.session, line 1: vulkan imports 'cpu'"
    ]


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
    assert find_upward_imports("telemetry.stages", line) == [
        "telemetry.stages, line 1: telemetry imports 'telemetry.exporters'"
    ]


# --- cycles ---


def get_file_name(path: Path) -> str:
    """The dotted name of a file; that of a package ends with `.__init__`."""
    return ".".join((PACKAGE, *path.relative_to(ROOT).with_suffix("").parts))


def find_cycle(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of one import cycle, the first one repeated at the end; empty if none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[::-1]  # each one imports the next
    return []


def test_no_import_cycle_between_modules() -> None:
    modules = {get_file_name(path).removesuffix(".__init__"): path for path in ROOT.rglob("*.py")}
    del modules[PACKAGE]  # imports every public name lazily
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = [name for _, name in list_imports(get_file_name(path), path.read_text())]
        # An imported name is a module, or something that is defined in a module.
        found = {name if name in modules else name.rpartition(".")[0] for name in names}
        imports[module] = (found & set(modules)) - {module}
    cycle = find_cycle(imports)
    assert not cycle, "an import cycle: " + " -> ".join(cycle)


def test_a_cycle_would_be_found() -> None:
    sources = {
        f"{PACKAGE}.a": "if TYPE_CHECKING:\n    from gpu_executor import b",
        f"{PACKAGE}.b": "from .c import name",
        f"{PACKAGE}.c": "def late() -> None:\n    import gpu_executor.a",
        f"{PACKAGE}.d": "from gpu_executor.c import name",
    }
    imports = {
        module: {
            name if name in sources else name.rpartition(".")[0]
            for _, name in list_imports(module, source)
        }
        for module, source in sources.items()
    }
    cycle = find_cycle(imports)
    assert set(cycle) == {f"{PACKAGE}.{letter}" for letter in "abc"}
    assert all(after in imports[before] for before, after in itertools.pairwise(cycle))


# --- test modules ---

TESTS = Path(__file__).parent
MAY_IMPORT_TESTS = re.compile(
    r"^[ \t]*(?:from|import)\b[^\n]*(?:\([^)]*)?\btest_", flags=re.MULTILINE
)
"""In every source that imports a test module, as ruff formats it. To parse all sources would take
seconds."""


def find_test_imports(module: str, source: str) -> list[str]:
    """The imports of test modules in a module under tests/, in words."""
    if not MAY_IMPORT_TESTS.search(source):
        return []
    return [
        f"{module}, line {line}: imports {name}"
        for line, name in list_imports(module, source)
        if name.startswith("tests.") and any(part.startswith("test_") for part in name.split("."))
    ]


def test_no_test_module_is_imported() -> None:
    found = [
        line
        for path in sorted(TESTS.rglob("*.py"))
        for line in find_test_imports(
            ".".join(path.relative_to(TESTS.parent).with_suffix("").parts), path.read_text()
        )
    ]
    assert not found, "move what tests share to tests/support:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "import tests.plan.test_plan",
        "from tests.plan.test_plan import ADD",
        "from tests.plan import test_plan",
        "from . import test_plan",
        "from .test_plan import ADD",
        "def late() -> None:\n    from tests.plan import (\n        ADD,\n        test_plan\n    )",
    ],
)
def test_an_import_of_a_test_module_would_be_found(line: str) -> None:
    assert len(find_test_imports("tests.plan.test_batch_plan", line)) == 1


# --- what `import gpu_executor` loads ---


def list_loaded_modules(statement: str) -> set[str]:
    """The modules beyond NumPy's own that `import gpu_executor as gx` and a statement load, in an
    interpreter of their own."""
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
HEAVY |= {f"{PACKAGE}.{package}" for package in ("bench", "soak", "report", "cli")}
ARITHMETIC = """
field = gx.fields.BLS12_381_FR
array = field.encode([3, 5])
assert field.decode(array * array - 10).tolist() == [field.modulus - 1, 15]
"""


@pytest.mark.parametrize(
    ("statement", "most"),
    [
        # Beside each limit: the number of modules that CPython 3.11 loaded. When `import
        # gpu_executor` imported every public name, it was 294. Other releases differ by a few.
        pytest.param("", 5, id="import"),  # 2
        pytest.param(ARITHMETIC, 140, id="field"),  # 132
        pytest.param("gx.curves.PALLAS.generator * 5", 170, id="curve"),  # 159
        pytest.param("gx.GpuExecutor", 220, id="executor"),  # 188
    ],
)
def test_an_import_loads_few_modules_no_driver_and_no_command_line(
    statement: str, most: int
) -> None:
    loaded = list_loaded_modules(statement)
    unwanted = [
        name
        for name in sorted(loaded)
        if any(name == heavy or name.startswith(f"{heavy}.") for heavy in HEAVY)
    ]
    assert not unwanted, f"loaded without need: {unwanted}"
    assert len(loaded) <= most, f"{len(loaded)} modules beyond NumPy's: {sorted(loaded)}"


def test_every_public_name_is_an_attribute_after_the_import_alone() -> None:
    loaded = list_loaded_modules(
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
