"""No two modules of the package import each other, directly or through others.

Every import statement counts: also those under TYPE_CHECKING and inside functions.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import gpu_executor

PACKAGE = "gpu_executor"
ROOT = Path(gpu_executor.__file__).parent


def module_name(path: Path) -> str:
    """The dotted name of a module's file; a package is named by its folder."""
    parts = (PACKAGE, *path.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(module: str, source: str, *, is_package: bool = False) -> Iterator[str]:
    """The dotted names that a module's source imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - 1 if is_package else node.level
                here = module.split(".")
                base = ".".join([*here[: len(here) - up], *filter(None, [base])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def find_cycle(imports: Mapping[str, set[str]]) -> list[str]:
    """The modules of one import cycle, the first one repeated at the end; empty if none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle[::-1]  # each one imports the next
    return []


def test_no_import_cycle_between_modules() -> None:
    # The front door is left out: it imports every public name lazily.
    modules = {module_name(path): path for path in ROOT.rglob("*.py")}
    del modules[PACKAGE]
    imports: dict[str, set[str]] = {}
    for module, path in modules.items():
        names = imported_names(module, path.read_text(), is_package=path.name == "__init__.py")
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
            for name in imported_names(module, source)
        }
        for module, source in sources.items()
    }
    cycle = find_cycle(imports)
    assert set(cycle) == {f"{PACKAGE}.{letter}" for letter in "abc"}
    assert all(after in imports[before] for before, after in pairwise(cycle))
