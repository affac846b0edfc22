"""The statements of Python source, also those under TYPE_CHECKING and inside functions."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator


def walk_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements inside of a node, also those inside of others. Expressions are not entered."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler | ast.match_case):
            yield from walk_statements(child)


@functools.cache
def list_imports(module: str, source: str) -> list[tuple[int, str]]:
    """The line and the dotted name of everything that a module's source imports.

    `module` is the dotted name of the file, so that of a package ends with `.__init__`.
    """
    found = []
    for node in walk_statements(ast.parse(source)):
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
        found += [(node.lineno, name) for name in names]
    return found
