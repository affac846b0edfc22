"""The import statements of Python source, also those under TYPE_CHECKING and inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def list_imports(module: str, source: str) -> Iterator[tuple[int, str]]:
    """The line and the dotted name of everything that a module's source imports.

    `module` is the dotted name of the file, so that of a package ends with `.__init__`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".")[: -node.level]
                base = ".".join([*here, *filter(None, [base])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            yield node.lineno, name
