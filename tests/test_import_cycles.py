"""No two modules of the package import each other, directly or through others.

Every import statement counts: also those under TYPE_CHECKING and inside functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import gpu_executor
from tests.support.statements import list_imports

PACKAGE = "gpu_executor"
ROOT = Path(gpu_executor.__file__).parent


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
    assert all(after in imports[before] for before, after in pairwise(cycle))
